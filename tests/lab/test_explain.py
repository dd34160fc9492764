"""`muster explain` on real torchrun output from hosts that the laboratory broke, and on texts of no use."""

import pytest

from benchmarks import explain as benchmark
from deploy.explain.cause import explain
from deploy.explain.read import sign_of
from deploy.explain.signs.table import SIGNS
from lab import fault, recordings, threads


def failed_runs():
    """For each fault in the catalogue: (fault, what each host printed) of its first recorded failed run.

    `make bench-preflight` reads all recorded runs.
    """
    known = fault.catalogue()
    for case, texts in recordings.load().items():
        if this := known.pop(recordings.of_fault(case), None):
            yield this, texts


@pytest.mark.long
def test_real_failures_are_explained_and_a_wrong_cause_is_rare():
    right = unknown = wrong = 0
    for case, texts in failed_runs():
        explained = explain(texts)
        causes = {explained.cause, *explained.maybe}
        right += bool(causes & {case.cause, *case.also})
        told = bool(causes & {case.cause, *case.also})
        unknown += not told and not explained.cause
        wrong += not told and bool(explained.cause)
        assert len(explained.maybe) <= 5, explained
    assert right + unknown + wrong >= 25
    assert right >= 0.8 * (right + unknown + wrong)
    assert wrong <= 0.05 * (right + unknown + wrong)


def test_an_explanation_shows_the_line_it_is_based_on():
    texts = {"gpu-a": "epoch 1\n", "gpu-b": "starting\nRuntimeError: [enforce fail at device.cc:84] ifa != nullptr. "
             "Unable to find address for: eth9\n"}  # fmt: skip
    explained = explain(texts)
    assert explained.cause == "interface-missing"
    assert "eth9" in explained.what
    assert [(line.node, line.number) for line in explained.evidence] == [("gpu-b", 2)]


@pytest.mark.parametrize("text", [
    "",
    "step 1 loss 0.3\nstep 2 loss 0.2\n",
    "RuntimeError: [pair.cc:553] Connection closed by peer [10.77.0.11]:1234",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
], ids=["empty", "a run", "a victim", "another victim"])  # fmt: skip
def test_output_without_a_cause_gets_none(text):
    assert explain({"a": text}).cause == ""


def test_a_cause_takes_precedence_over_its_victims_errors():
    texts = {"a": "RuntimeError: Connection reset by peer", "b": "torch.OutOfMemoryError: CUDA out of memory. Tried"}
    assert explain(texts).cause == "gpu-memory"


def test_an_error_of_the_script_is_reported_as_such():
    explained = explain({"a": "Traceback (most recent call last):\n  x\nKeyError: 'image'\n"})
    assert explained.cause == "script-error"
    assert "KeyError: 'image'" in explained.what


@pytest.mark.long
def test_real_output_of_any_launcher_is_explained_as_well_as_before():
    verdicts = [benchmark.verdict(thread, thread.text) for thread in threads.load()]
    assert verdicts.count("right") >= 730
    assert verdicts.count("wrong") == 0


@pytest.mark.long
def test_each_row_is_the_first_match_of_a_line_in_a_thread_or_recorded_run():
    """A row that no recorded text matches is a guess: find a thread for it (lab/threads.py), or remove it."""
    texts = [thread.text for thread in threads.load()]
    texts += [text for hosts in recordings.load().values() for text in hosts.values()]
    matched = {id(sign_of(line[:2000])) for line in {line for text in texts for line in text.splitlines()}}
    assert not [sign.pattern.pattern for sign in SIGNS if id(sign) not in matched]


@pytest.mark.long
def test_a_cause_without_a_row_is_rarely_mistaken_for_another():
    said = benchmark.unforeseen(threads.load())
    assert said.total() >= 300
    assert said["wrong"] <= 0.06 * said.total()


def test_the_tables_are_whole_again_after_a_cause_was_left_out():
    text = {"a": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."}
    with benchmark.without(("gpu-memory", "host-memory")):
        assert explain(text).cause == ""
    assert explain(text).cause == "gpu-memory"


def test_printed_threads_parse_back_to_the_same_threads():
    assert list(threads.parse(threads.printed(threads.load()))) == threads.load()
