"""What somebody else wrote is read within a stated budget, and gives a value or a readable error."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from pathlib import Path

import pytest

from deploy.commands import explain
from deploy.report.console import Console
from deploy.report.page import run as page
from deploy.run.follower import Follower
from muster.checkpoint import store
from muster.checkpoint.manifest import parse_manifest, read_manifest
from muster.errors import CheckpointError
from muster.files import read_object
from muster.reserve import JOURNAL
from tests.hostile.fuzz import near, readers, samples
from trainer.node.ending.rank_lives import Ends
from trainer.node.hang import stacks, stuck_ranks
from trainer.verdict import verdict_of

# SHARE crafted inputs for each reader, and TEXTS near matches for each pattern: all in less than half a minute.
SHARE, TEXTS, LONGEST, MOST_S = 2, 5, 4096, 0.15
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
NOISE = "".join(f"a.b.Error{chr(97 + n % 26)}: {chr(97 + n // 26)}{'x' * (n % 9)} failed error\n" for n in range(600))


@pytest.mark.holds("reader-budget")
@pytest.mark.parametrize("reader", readers.READERS, ids=lambda reader: reader.name)
def test_crafted_inputs_are_read_within_the_budget(reader) -> None:
    results = [readers.tried(reader, f"test.{number}") for number in range(SHARE)]
    assert [f"{each.over} (seed {each.seed})" for each in results if each.over] == []


@pytest.mark.holds("reader-budget")
def test_no_text_that_almost_matches_a_pattern_takes_long() -> None:
    slow, chance = [], random.Random(7)
    for place, pattern in near.patterns().items():
        for text in [near.almost(pattern, chance, LONGEST) for _ in range(TEXTS)]:
            began = time.thread_time()
            pattern.match(text if isinstance(pattern.pattern, str) else text.encode())
            # The following patterns are only matched at the beginning of a line.
            if not place.partition(".")[2].startswith(("_PREFIXES", "_FILE", "_IN_TRACEBACK")):
                pattern.search(text if isinstance(pattern.pattern, str) else text.encode())
            if time.thread_time() - began > MOST_S:
                slow.append(f"{place}: {text[:60]!r}")
    assert slow == []


@pytest.mark.holds("reader-budget")
def test_a_small_file_that_unpacks_to_a_huge_one_is_left_unread_and_reported(tmp_path, capsys) -> None:
    log = tmp_path / "run.log.gz"
    log.write_bytes(gzip.compress(OOM.encode() + b"step 1 loss 0.1\n" * (1 << 24), 1)[: 1 << 20])
    began = time.process_time()
    explain.tell([str(log)], Console())
    assert time.process_time() - began < 3
    said = capsys.readouterr().out
    assert "gpu-memory" in said
    assert "not read  run.log.gz: " in said


def test_a_log_that_takes_too_long_hides_no_cause_and_is_reported(tmp_path, capsys) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"{chr(97 + n % 25)}{NOISE}" for n in range(40)) + "step 3 loss 0.1\n" * 20_000 + OOM)
    began = time.process_time()
    explain.tell([str(log)], Console(as_json=True))
    assert time.process_time() - began < 2 * max(1.0, log.stat().st_size / 1e6) + 0.5
    told = json.loads(capsys.readouterr().out)
    assert told["evidence"]
    assert told["unread"] == {} or told["unread"]["run.log"][0] > 0


def test_a_folder_of_thousands_of_logs_is_explained(tmp_path, capsys) -> None:
    for number in range(1500):
        (tmp_path / f"rank_{number}.log").write_text("step 1 loss 0.1\n")
    (tmp_path / "rank_7.log").write_text(OOM)
    explain.tell([str(tmp_path)], Console())
    assert "gpu-memory" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "said"), [(2003, "3 of 2,003 logs"), (20_100, "what lies beyond 20,000 files")])
def test_unopened_files_of_a_folder_are_reported_and_no_success_is_claimed(tmp_path, capsys, count, said) -> None:
    for number in range(count):
        (tmp_path / f"rank_{number:05}.log").write_text("step 1 loss 0.1\ntraining done\n" if number % 9 == 0 else "")
    explain.tell([str(tmp_path)], Console())
    shown = capsys.readouterr().out
    assert "cause     not known" in shown
    assert said in shown
    explain.tell([str(tmp_path)], Console(as_json=True))
    assert said in json.loads(capsys.readouterr().out)["left_out"][0]


@pytest.mark.parametrize("odd", [
    '{"a":' * 300 + "1" + "}" * 300, "[" * 100_000, '{"format": 1e999}', '{"format": NaN}', '{"format": true}', "7",
    '{"format": ' + "9" * 5000 + "}", '{"format": 1, "files": []}', '{"format": 1, "files": {"a": 1}}',
])  # fmt: skip
def test_an_odd_manifest_gives_a_readable_error(tmp_path, odd) -> None:
    path = tmp_path / "checkpoints" / "step-00000020"
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(odd)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        read_manifest(path)
    with pytest.raises(CheckpointError):
        store.locate(tmp_path)


@pytest.mark.parametrize(("field", "value"), [
    ("step", "x"), ("step", -1), ("created", "now"), ("metric", []), ("summary", 5), ("files", {"../a": {}}),
    ("files", {"a": {"sha256": 5, "bytes": 1}}), ("files", {"a": {"sha256": "", "bytes": 1e300}}),
])  # fmt: skip
def test_a_manifest_field_with_a_wrong_type_is_refused(field, value) -> None:
    good = {
        "step": 1,
        "created": 1.0,
        "metric": None,
        "files": {"state.pt": {"sha256": "0", "bytes": 1}},
        "summary": {},
    }
    parse_manifest(json.dumps(good))
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse_manifest(json.dumps({**good, field: value}))


@pytest.mark.parametrize(("field", "value"), [
    ("step", "NaN"), ("step", "1e999"), ("step", "9" * 4000), ("step", "[]"), ("pid", "-1"), ("pid", "1e300"),
    ("t", '"x"'), ("since_s", "{}"), ("doing", "[[]]"), ("before", "null"), ("collectives", "[{}, 5, [1]]"),
    ("collectives", "[" * 60 + "]" * 60), ("main", "7"), ("error", '"\\ud800"'),
])  # fmt: skip
def test_an_odd_value_in_a_ranks_stacks_is_left_out(tmp_path, field, value) -> None:
    frames = 'Thread 0x7f (most recent call first):\n  File "/home/me/train.py", line 4 in main\n'
    path = tmp_path / "0.stacks"
    path.write_text(f'Look {{"t": 5.0, "pid": 7, "step": 4, "{field}": {value}}}\n{frames}' * 3)
    looks = stacks.read(path)
    assert [look.threads[0].frames[0].line for look in looks] == [4, 4, 4]
    assert stacks.last_collectives(tmp_path, 0, 7) == ()
    stacks.of_life(path, 0.0)
    assert stuck_ranks.is_moving(looks, 0.0, 6.0) in (True, False)
    json.dumps(stuck_ranks.describe(looks[-1], tmp_path)).encode()


def test_a_stack_frame_with_an_endless_line_number_is_skipped(tmp_path) -> None:
    frames = f'  File "a", line {"9" * 9999} in f\n  File "b", line 3 in g\n'
    (tmp_path / "0.stacks").write_text(f"Look {{}}\nThread 0x7f (most recent call first):\n{frames}")
    (look,) = stacks.read(tmp_path / "0.stacks")
    assert [frame.file for frame in look.threads[0].frames] == ["b"]


@pytest.mark.parametrize("line", ["[]", "7", "x", '{"local_rank": 0}', '{"local_rank": [], "t": 1}', "[" * 5000,
                                  '{"local_rank": 3, "t": 1, "code": 1}', '{"local_rank": 0, "t": 1e999}'])  # fmt: skip
def test_a_journal_line_that_is_not_a_ranks_note_is_skipped(tmp_path, line) -> None:
    good = {"local_rank": 0, "t": 1.0, "rank": 0, "attempt": 0, "world": 1, "pid": 7}
    ends = Ends(tmp_path)
    (tmp_path / JOURNAL).write_text(f"{line}\n{json.dumps(good)}\n")
    assert [life.pid for life in ends.read()] == [7]
    (tmp_path / "0.json").write_text(line)
    assert verdict_of(read_object(tmp_path / "0.json")) is None


def test_a_late_follower_of_a_huge_file_reads_its_first_and_last_lines(tmp_path) -> None:
    file = tmp_path / "ranks" / "rank-0.jsonl"
    file.parent.mkdir()
    many = (samples.STEP + "\n") * ((36 << 20) // len(samples.STEP))
    file.write_text(samples.event(kind="plan", steps=600) + "\n" + many + samples.event(kind="stopping", step=7) + "\n")
    events = Follower(tmp_path, from_start=True).read()
    kinds = {event["kind"] for event in events}
    assert {"plan", "step", "stopping", "unread"} <= kinds
    assert sum(len(samples.STEP) for _ in events) < 34 << 20
    assert any("only one line in" in event.get("why", "") for event in events)


@pytest.mark.holds("reader-budget")
@pytest.mark.parametrize(("name", "line"), [("timeline.jsonl", "\n"), ("ranks/rank-0.jsonl", "{}\n")])
def test_very_many_short_lines_cost_little(tmp_path, name, line) -> None:
    run, began = tmp_path / "r1", time.process_time()
    (run / name).parent.mkdir(parents=True)
    (run / "record.json").write_text(samples.RECORD)
    (run / "outcome.json").write_text(samples.OUTCOME)
    (run / name).write_text(line * ((3 << 20) // len(line)))
    explain.tell([str(run)], Console())
    assert f"{Path(name).name}: its end is left out" in page.build(run) or name == "timeline.jsonl"
    assert time.process_time() - began < 6


@pytest.mark.parametrize("pad", [0, 300])
def test_a_very_long_story_shows_its_end_and_reports_the_cut(tmp_path, capsys, pad) -> None:
    run = tmp_path / "r1"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "rank-1.log").write_text("step 1 loss 0.1\n")
    (run / "record.json").write_text(samples.RECORD)
    dull = json.dumps({"t": 1795238480.0, "text": "epoch" + "x" * pad, "grave": False})
    last = json.dumps({"t": 1795238481.0, "text": "rank 1 (b) was killed by SIGKILL", "grave": True})
    for count, is_cut in ((100, False), (21_000, True)):
        (run / "timeline.jsonl").write_text(f"{dull}\n" * count + f"{last}\n")
        explain.tell([str(run)], Console())
        told = capsys.readouterr().out
        assert "rank 1 (b) was killed by SIGKILL" in told
        assert ("timeline.jsonl is longer than what Muster reads" in told) is is_cut


def test_a_page_with_huge_metrics_shows_a_sample_of_the_whole_run_and_says_so(tmp_path) -> None:
    run = tmp_path / "r1"
    (run / "ranks").mkdir(parents=True)
    (run / "record.json").write_text(samples.RECORD)
    rows = (json.dumps({"t": 1795238470 + n, "step": n, "loss": 1 / n, "pad": "x" * 2000}) for n in range(1, 10_001))
    (run / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    text = page.build(run)
    assert re.search(r"metrics\.jsonl: has 2\d MB: only one line in 2 is shown", text)
