"""`muster explain RUN`: the run's outcome and story come first, then its logs. The texts are from real runs."""

import json
from dataclasses import asdict

import pytest

from deploy.causes.end_causes import Cause
from deploy.commands.explain import lines_of, next_of, tell
from deploy.explain.cause import explain
from deploy.report.console import Console
from deploy.run.inquest.causes import Finding
from deploy.run.own_run import OwnRun, of_run
from deploy.run.state.story import Happening

KILL = "torchrun: E1126 02:27:58.796000 128 torch/api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 132) of x\n"
LOST = "[rank{}]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:26501.\n"
STILL = "no rank has made a step: rank 1 (worker-1) is stuck in hang.py:19 main() for 5.6 s; ranks 0, 2 wait for it"
ENDED = "worker-1 (rank 1) was stuck in hang.py:19 for 38 s, and its node ended it at step 31"
KILLED = "worker-1 (rank 1) was killed by SIGKILL from outside (the kernel was not out of memory) at step 244"
ERROR = "RuntimeError: Parent directory out does not exist."
AGAIN = (
    f"the script starts again (restart 2): master (rank 0) ended with code 1: {ERROR}; "
    "logs/rank-0.log has its last words"
)


# The finding behind each of these lines of a story.
TROUBLES = {
    STILL: Finding(Cause.LOCKED_UP, STILL, "worker-1", 1),
    ENDED: Finding(Cause.LOCKED_UP, ENDED, "worker-1", 1),
    KILLED: Finding(Cause.KILLED, KILLED, "worker-1", 1),
    AGAIN: Finding(Cause.EXCEPTION, f"master (rank 0) ended with code 1: {ERROR}", "master", 0),
}


def story(*texts):
    return tuple(
        Happening(1000.0 + 10 * number, text, True, TROUBLES.get(text), restart="starts again" in text)
        for number, text in enumerate(texts)
    )


RESTART = (Happening(2000.0, "the script starts again (restart 1)", True, restart=True),)


def failed(message, cause, node="", rank=None, restarts=0):
    return {"verdict": "failed", "message": message, "cause": cause, "node": node, "rank": rank, "restarts": restarts}


def hang_then_raise():
    """A rank hung, its node ended it, and the restarted script raised; torchrun's SIGKILL lines stay in the log."""
    frames = 'File "hang.py", line 21, in main', 'File "/lib/python3.11/site-packages/torch/serialization.py", line 828'
    traceback = "\n".join(f"    [rank0]:   {frame}" for frame in frames) + f"\n    [rank0]: {ERROR}"
    outcome = failed(f"hang.py ended with code 1: {ERROR}\n{traceback}", "exception", "master", 0, 2)
    return OwnRun("x", outcome, story(STILL, ENDED, "the script starts again (restart 1)", AGAIN))


def test_a_rank_that_muster_ended_for_a_restart_is_not_the_cause():
    shown = explain({"worker-1": KILL + LOST.format(1), "master": f"[rank0]: {ERROR}\n"})
    assert shown.cause == "killed", "this is what the logs alone suggest"
    explained = of_run(shown, hang_then_raise())
    assert (explained.cause, explained.first) == ("exception", "rank 0 on master")
    assert ERROR in explained.what
    assert "memory" not in explained.next
    assert [line.text for line in explained.story][1:3] == [ENDED, "the script starts again (restart 1)"]
    assert "killed (worker-1:1)" in explained.contradicted


def test_a_run_that_continues_after_a_kill_is_explained_by_its_story():
    shown = explain({"worker-1": KILL})
    explained = of_run(shown, OwnRun("x", {}, story(KILLED, "the script starts again (restart 1)")))
    assert (explained.cause, explained.first) == ("killed", "rank 1 on worker-1")
    assert "the kernel was not out of memory" in explained.what
    assert "no end of the run is recorded" in explained.what
    assert "host-memory" not in explained.maybe
    assert explained.next == "muster why --run x"
    assert not explained.contradicted, "both say killed"


def test_a_run_that_was_stopped_on_request_names_the_rank_that_was_stuck_before():
    shown = explain({"rack-1": "torchrun: W1 Received 15 death signal, shutting down workers\n"})
    still = "no rank has made a step: rank 2 (rack-3) is stuck in train.py:54 main() for 7 s"
    told = Happening(1000.0, still, True, Finding(Cause.LOCKED_UP, still, "rack-3", 2))
    explained = of_run(shown, OwnRun("x", failed("killed immediately, as requested", "ended-from-outside"), (told,)))
    assert (explained.cause, explained.first) == ("stopped", "rank 2 on rack-3")
    assert "killed immediately, as requested" in explained.what
    assert still in explained.what


def test_an_end_without_an_exception_has_the_verdicts_cause_unless_the_ranks_log_knows_more():
    words = "train.py ended with code 1 without an exception"
    left = OwnRun("x", failed(words, "left-early", "worker-1", 1))
    explained = of_run(explain({"rank-1": "epoch 3\n", "rank-0": LOST.format(0)}), left)
    assert (explained.cause, explained.first) == ("left-early", "rank 1 on worker-1")
    assert words in explained.what
    full = of_run(explain({"rank-1": "OSError: [Errno 28] No space left on device\n"}), left)
    assert (full.cause, full.first) == ("disk-full", "rank 1 on worker-1")


def test_a_rank_ended_by_the_stop_itself_is_not_what_happened_before_the_stop():
    by_stop = "master (rank 0) was ended by the request to stop (SIGTERM) at step 73"
    ended = Happening(1010.0, by_stop, False, Finding(Cause.ENDED, by_stop, "master", 0))
    outcome = {"verdict": "stopped", "message": "hang.py was asked to stop"}
    explained = of_run(explain({"a": ""}), OwnRun("x", outcome, (*story(STILL), ended)))
    assert explained.first == "rank 1 on worker-1"
    assert STILL in explained.what
    assert by_stop not in explained.what
    well = of_run(explain({"a": ""}), OwnRun("x", outcome, (ended,)))
    assert (well.first, "before that" in well.what) == ("", False)


def test_a_trouble_that_a_restart_fixed_is_not_why_a_run_was_stopped():
    mended = (*story(KILLED, "the script starts again (restart 1)"),)
    explained = of_run(explain({"a": ""}), OwnRun("x", {"verdict": "stopped", "message": "stopped at step 9"}, mended))
    assert (explained.cause, explained.first) == ("stopped", "")
    assert "before that" not in explained.what


def test_a_rank_that_moves_again_is_no_trouble():
    shown = explain({"a": "step 1\n"})
    lines = (*story(STILL), Happening(2000.0, "rank 1 moves again", moves=True))
    assert not of_run(shown, OwnRun("x", {}, lines)).cause


def test_a_run_that_ended_well_did_not_fail_whatever_an_earlier_start_logged():
    explained = of_run(explain({"worker-1": KILL}), OwnRun("x", {"verdict": "done", "restarts": 1}, story(KILLED)))
    assert (explained.cause, explained.ended_well) == ("", True)
    assert "after 1 restart" in explained.what
    assert "killed" in explained.contradicted


def test_a_nan_loss_does_not_contradict_a_run_that_ended_well():
    shown = explain({"master": "step 8 loss nan\nstep 9 loss nan\n"})
    assert (shown.cause, of_run(shown, OwnRun("x", {"verdict": "done"})).contradicted) == ("loss-nan", "")


def test_a_nan_loss_that_a_log_shows_is_said_of_a_run_that_failed_for_another_reason():
    shown = explain({"master": "step 8 loss nan\nstep 9 loss nan\n"})
    explained = of_run(shown, OwnRun("x", failed("b (rank 1) was killed by SIGKILL", "killed", "b", 1)))
    assert explained.contradicted.startswith("the logs alone suggest loss-nan (master:")


def test_a_verdict_that_names_no_node_keeps_the_log_lines_with_its_own_cause():
    shown = explain({"a": KILL})
    assert of_run(shown, OwnRun("x", failed("a rank was killed", "killed"))).evidence == shown.evidence
    again = of_run(shown, OwnRun("x", failed("a rank was killed", "killed", restarts=1)))
    assert again.evidence == (), "the lines may be from another start"


def test_only_a_run_whose_ranks_have_started_again_is_said_to_have_restarted():
    once, again = (of_run(explain({"a": ""}), OwnRun("x", {}, story(KILLED)[:1] + more)) for more in ((), RESTART))
    assert once.what.endswith("(the run's story; no end of the run is recorded)")
    words = "(the run's story; all ranks have started again since, and no end of the run is recorded)"
    assert again.what.endswith(words)
    shown, outcome = (
        explain({"master": LOST.format(0) + "CUDA out of memory. Tried\n"}),
        ("KeyError", "exception", "b", 1),
    )
    why = [of_run(shown, OwnRun("x", failed(*outcome, restarts=count))).contradicted for count in (0, 1)]
    assert why[0].endswith(": Muster saw how each rank ended")
    assert why[1].endswith(": a log shows the end of every start, and Muster started the ranks again")


def test_the_log_of_the_rank_that_failed_says_more_than_the_verdict():
    shown = explain({"rank-1": "[rank1]: KeyError: 'image'\n", "master": LOST.format(0)})
    outcome = failed("train.py ended with code 1: KeyError: 'image'", "exception", "worker-1", 1)
    explained = of_run(shown, OwnRun("x", outcome, ()))
    assert (explained.cause, explained.first) == ("script-error", "rank 1 on worker-1")
    assert explained.evidence == shown.evidence
    assert not explained.contradicted


def test_the_log_of_another_rank_does_not_overrule_the_verdict():
    shown = explain({"master": "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried\n"})
    outcome = failed("train.py ended with code 1: KeyError: 'image'", "exception", "worker-1", 1)
    explained = of_run(shown, OwnRun("x", outcome, ()))
    assert (explained.cause, explained.first) == ("script-error", "rank 1 on worker-1")
    assert "gpu-memory (master:1)" in explained.contradicted


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("train.py ended with code 1: KeyError: 'image'", "script-error"),
        ("b (rank 1) ended with code 1 at step 4 of 9: KeyError: 'image'", "script-error"),
        ("b (rank 1) failed in other words than today's: KeyError: 'image'", "script-error"),
        ("KeyError: 'image'", "script-error"),
        ("train.py ended with code 1: KeyError: 'image'\n    frame\n    KeyError: 'image'", "script-error"),
        (
            "train.py ended with code 1: KeyError: 'image'\nthen: x ended with code 1: CUDA out of memory",
            "script-error",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`", "device-assert"),
    ],
)
def test_the_words_of_an_exception_are_read_in_whatever_words_they_are_reported(message, cause):
    explained = of_run(explain({"a": "step 1\n"}), OwnRun("x", failed(message, "exception", "b", 1)))
    assert explained.cause == cause


def test_a_rank_that_left_early_is_named_even_if_the_logs_show_only_its_victims():
    message = "worker-1 (rank 1) left early, with code 0; rank 0 lost it"
    explained = of_run(explain({"master": LOST.format(0)}), OwnRun("x", failed(message, "left-early", "worker-1", 1)))
    assert (explained.cause, explained.first) == ("left-early", "rank 1 on worker-1")
    assert explained.what == f"{message} (the run's own verdict)"


def test_without_a_verdict_that_names_a_node_the_logs_decide():
    shown = explain({"a": "KeyError: 'x'\n"})
    assert of_run(shown, OwnRun("x", failed("no sign of life", "not-known"))).cause == "script-error"
    assert of_run(shown, OwnRun("x")) == shown
    slow = story("rack-3 (rank 2) is slow: it computes for 2121 ms of each step")
    assert of_run(shown, OwnRun("x", {}, slow)).cause == "script-error", "a slow rank ends no run"


@pytest.fixture
def run_folder(tmp_path):
    run, folder = hang_then_raise(), tmp_path / "runs/x"
    (folder / "logs").mkdir(parents=True)
    (folder / "record.json").write_text('{"id": "x", "backend": "processes"}')
    (folder / "outcome.json").write_text(json.dumps(run.outcome))
    (folder / "timeline.jsonl").write_text("".join(json.dumps(asdict(line)) + "\n" for line in run.story))
    (folder / "logs/worker-1.log").write_text(KILL + LOST.format(1))
    (folder / "logs/rank-0.log").write_text(LOST.format(0) + f"step 1\n[rank0]: {ERROR}\n[rank0]: {ERROR}\nstep 2\n")
    return folder


def test_the_evidence_is_the_last_log_line_with_the_text_of_the_verdict(run_folder, capsys):
    assert tell([str(run_folder)], Console(False)) == 0
    out = capsys.readouterr().out
    assert f"evidence  rank-0:4 (rank 0): [rank0]: {ERROR}" in out
    assert out.count("timeline  ") == 4
    assert "but       the logs alone suggest killed" in out


def test_a_run_whose_logs_are_gone_is_still_explained(run_folder, capsys):
    for log in (run_folder / "logs").iterdir():
        log.unlink()
    assert tell([str(run_folder)], Console(False)) == 0
    assert "first     rank 0 on master" in capsys.readouterr().out


def test_the_next_command_for_an_ongoing_hang_is_muster_why():
    explained = of_run(explain({"a": "step 1\n"}), OwnRun("x", {}, story(STILL)))
    assert (explained.cause, next_of(explained, "", {})) == ("locked-up", "muster why --run x")
    assert any(line.startswith("timeline  ") for line in lines_of(explained))


@pytest.mark.parametrize("outcome", [
    {"verdict": ["failed"], "message": {"a": 1}, "node": ["x"], "rank": True, "cause": 7, "restarts": "many"},
    {"t": 1.0},
    {"verdict": "failed", "message": "\nthen: that", "cause": "a cause of a newer Muster", "node": "a", "rank": -1},
    {"verdict": "stopped", "message": "\n"},
])  # fmt: skip
def test_an_odd_outcome_of_another_program_is_shown_without_a_crash(outcome):
    for shown in (explain({"a": "step 1\n"}), explain({"a": "KeyError: 'x'\n"})):
        assert lines_of(of_run(shown, OwnRun("x", outcome, story("", "\n", "\x1b[31m was killed by \n"))))


def test_the_hint_of_the_verdict_is_repeated():
    outcome = failed("its ranks trained alone", "trained-alone", "a", 0) | {"hint": "leave --standalone\x1b out there"}
    lines = lines_of(of_run(explain({"a": "joined\n"}), OwnRun("x", outcome)))
    assert "hint      leave --standalone\\x1b out there" in lines
    assert lines[0].startswith("cause     trained-alone")
