"""Where a command prints: data on standard output, messages on standard error, and a node's text as plain text."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console as RichConsole

from deploy.causes.end_causes import Cause
from deploy.core.errors import DeployError
from deploy.core.facts import RunFacts
from deploy.report import console as module
from deploy.report import live_view, tables
from deploy.report import text as lines
from deploy.report.console import THEME, Console
from deploy.report.live_view import view
from deploy.run.files import recorded_ends
from deploy.run.inquest.causes import Finding
from deploy.run.outcome import Result, may_have_written
from deploy.run.progress import State
from deploy.run.state.story import Happening
from lab.waiting import until

NAMES = ("master", "worker-1", "worker-2")
WHY = "local processes (no Docker engine answers)"


def console(terminal: bool = False, width: int = 120) -> RichConsole:
    return RichConsole(
        file=io.StringIO(),
        theme=THEME,
        markup=False,
        emoji=False,
        width=width,
        force_terminal=terminal,
        color_system=None,
    )


def text(of: RichConsole) -> str:
    return of.file.getvalue()


def reporter(
    as_json: bool = False, terminal: bool = False, width: int | None = None
) -> tuple[Console, RichConsole, RichConsole]:
    out, err = (console(terminal, width), console(terminal, width)) if width else (console(), console(terminal))
    return Console(as_json, out, err), out, err


def training() -> State:
    state = State(NAMES)
    state.apply({"kind": "plan", "t": 1.0, "rank": 0, "recipe": "digits", "steps": 600, "samples": 1437})
    for rank, node in enumerate(NAMES):
        state.apply({"kind": "started", "t": 1.0, "rank": rank, "node": node, "pid": rank, "backend": "gloo"})
    for step in range(20, 260, 20):
        for rank, node in enumerate(NAMES):
            times = {"step_ms": 12.0, "data_ms": 0.5, "compute_ms": 8.5, "wait_ms": 3.0}
            state.apply({"kind": "step", "t": step / 50, "rank": rank, "node": node, "step": step, **times})
        state.apply({"kind": "metrics", "t": step / 50, "step": step, "loss": 46.2 / step, "samples_per_s": 5410.0})
    state.apply({"kind": "checkpoint", "t": 4.0, "rank": 0, "step": 200, "pause_ms": 3.2})
    return state


def rendered(state: State, width: int = 120, height: int = 24) -> list[str]:
    target = console(width=width)
    target.print(view(state, "digits", WHY, width, height))
    return [line.rstrip() for line in text(target).splitlines()]


def test_the_view_shows_nodes_loss_throughput_time_left_and_checkpoint() -> None:
    head, heads, master, worker, _, bar, metrics, story = rendered(training())
    assert head == f"muster   master + 2 workers   gloo   digits   {WHY}"
    assert heads == "  node       rank   step      ms/step   data   compute   waiting"
    assert master == "  master     0      240/600   12.0      4 %    71 %      25 %"
    assert worker.startswith("  worker-1   1      240/600")
    assert (bar.count("━"), bar.count("╌"), bar.endswith(" 40 %")) == (10, 14, True)
    assert metrics.startswith("  loss 2.31 █")
    assert metrics.endswith("▁ 0.193    5,410 samples/s    left 0:07    checkpoint at step 200 (3.2 ms pause)")
    assert story.endswith("training digits: 1,437 samples")


def test_a_narrow_terminal_gets_one_line_of_whole_cells_for_each_node() -> None:
    for width, last in ((100, "25 %"), (70, "25 %"), (50, "4 %"), (36, "240/600")):
        _, _, master, worker, *_ = rendered(training(), width)
        for row, name in ((master, "master"), (worker, "worker-1")):
            assert row.startswith(f"  {name}"), width
            assert row.endswith(last), width


def test_a_slow_rank_and_a_silent_rank_are_marked() -> None:
    state = training()
    times = {"step_ms": 90.0, "data_ms": 80.0, "compute_ms": 8.5, "wait_ms": 0.0}
    state.apply({"kind": "step", "t": 5.0, "rank": 1, "node": "worker-1", "step": 260, **times})
    assert [line.split()[1] for line in rendered(state)[2:5]] == ["0", "slow", "2"]
    for t in (20.0, 40.0):
        for rank in (0, 1):
            step = {"kind": "step", "t": t, "rank": rank, "node": NAMES[rank], "step": int(t) * 20}
            state.apply({**step, "step_ms": 12.0, "data_ms": 0.5, "compute_ms": 8.5, "wait_ms": 3.0})
    assert [line.split()[1] for line in rendered(state)[2:5]] == ["0", "1", "silent"]
    alone = State(("a",))
    alone.apply({"kind": "step", "t": 1.0, "rank": 0, "node": "a", "step": 3, **times})
    assert lines.marks(alone) == {}
    assert lines.bar(alone, 80) == ""


def test_if_not_all_nodes_fit_the_slow_silent_and_lost_ones_are_shown() -> None:
    """Earlier, rank 1,002 of 2,048 delayed all, but the view had lines only for the first 29 hosts, all healthy."""
    names = tuple(f"gpu-{number:03d}" for number in range(256))
    state = State(names, script=True)
    for rank in range(2048):
        times = {"step_ms": 90.0, "data_ms": 1.0, "compute_ms": 80.0 if rank == 1002 else 10.0, "wait_ms": 10.0}
        t = 5.0 if rank == 2040 else 60.0
        state.apply({"kind": "step", "t": t, "rank": rank, "node": names[rank // 8], "step": 260, **times})
    state.apply({"kind": "node", "t": 60.0, "node": "gpu-201", "state": "lost", "code": None, "restarts": 0})
    shown = [line.split() for line in rendered(state, height=24)[2:-1]]
    assert [line[:3] for line in shown if line[1] in ("slow", "silent", "lost")] == [
        ["gpu-125", "slow", "1002"],
        ["gpu-201", "lost"],
        ["gpu-255", "silent", "2040"],
    ]
    assert [line[0] for line in shown[:3]] == ["gpu-000", "gpu-001", "gpu-002"]
    assert len(shown) == 24 - 11


def test_a_killed_node_is_not_taken_to_have_written_nothing() -> None:
    state = State(("a", "b"), script=True)
    state.apply({"kind": "began", "t": 1.0, "rank": 0, "node": "a", "attempt": 0, "world": 1, "pid": 1})
    state.nodes.remains["b"] = {"files": 0, "bytes": 0}
    assert may_have_written(state)
    assert left_line(state, "muster fetch").endswith("the files that it wrote: muster fetch")
    state.nodes.remains["b"] = {"files": 2, "bytes": 9}
    assert left_line(state, "muster fetch") == "2 files, 9 B on b; there may be more on a: muster fetch"
    state.nodes.remains = {node: {"files": 0, "bytes": 0} for node in "ab"}
    assert not may_have_written(state)
    assert "and the script wrote no files" in left_line(state, "muster fetch")
    state.apply({"kind": "step", "t": 5.0, "rank": 0, "node": "a", "step": 3})
    assert left_line(state, "muster fetch").endswith("; the script wrote no files into its folder or its home")


def test_the_last_line_says_which_downloads_stay_and_how_to_fetch_them() -> None:
    state = State(("a", "b"), script=True)
    place = "home/.cache/huggingface"
    for node, files in (("a", 1), ("b", 0)):
        kept = {"kind": "kept", "t": 1.0, "rank": 0, "node": node, "files": files, "bytes": 7 * files}
        state.apply({**kept, "top": "home", "downloads": 20_000_000_000, "place": place})
    line = left_line(state, "muster fetch")
    assert (
        line == f"1 file, 7 B on a: muster fetch; 40.0 GB of downloads stay on a, b: to copy them, add --only {place}"
    )
    assert left_line(state, "") == "1 file, 7 B in runs/x/home; logs in runs/x/"


def test_the_story_reports_files_written_where_nothing_is_kept() -> None:
    for path, told in (
        ("/data/a b/best.pt", "is lost with the container; `--keep '/data/a b'` keeps it"),
        ("/muster/cache/torch/best.pt", "among the shared downloads"),
        ("/muster/run/out/best.pt", "at a restart, no other host gets it"),
    ):
        state = State(("a",), script=True)
        event = {"kind": "outside", "t": 1.0, "rank": 0, "node": "a", "paths": [path], "files": 2, "bytes": 7}
        state.apply(event)
        (line,) = [happening.text for happening in state.story]
        assert f"a: the script wrote {path} and 1 other file (7 B)" in line
        assert told in line


def test_the_view_says_what_nodes_wait_for_before_they_train() -> None:
    state = State(NAMES)
    state.apply({"kind": "node_up", "node": "master", "t": 1.0})
    _, master, worker, _ = rendered(state)
    assert master == "  master     up, waiting for the others"
    assert worker == "  worker-1   starting"


def test_the_view_fits_a_small_terminal() -> None:
    state = State(("master", *(f"worker-{n}" for n in range(1, 64))))
    shown = rendered(state, width=60, height=20)
    assert len(shown) <= 20
    assert all(len(line) <= 60 for line in shown)
    assert "and 55 more nodes" in shown[-1]


@pytest.mark.parametrize("width", [98, 110, 140])
def test_the_loss_curve_shrinks_before_its_line_is_cut(width: int) -> None:
    metrics = rendered(training(), width=width)[6]
    assert metrics.endswith("(3.2 ms pause)")
    assert 6 <= sum(letter in "▁▂▃▄▅▆▇█" for letter in metrics) <= 24


@pytest.mark.parametrize(("loss", "shown"), [(1.7e308, "1.70e+308"), (1e30, "1.00e+30"), (123456.0, "123,456")])
def test_a_huge_loss_is_shown_in_few_letters(loss: float, shown: str) -> None:
    state = training()
    for step in range(601, 700):
        state.apply({"kind": "metrics", "t": 3.0, "step": step, "loss": loss})
    assert f" {shown} " in rendered(state)[6]
    assert f"loss {shown} " in lines.progress_line(state)


def test_text_from_a_node_is_never_markup() -> None:
    state = training()
    state.apply({"kind": "checkpoint_failed", "t": 2.0, "step": 3, "message": "[/data] is full [red]:rocket:[node-1]"})
    assert any("[/data] is full [red]:rocket:[node-1]" in line for line in rendered(state))


def test_without_a_terminal_the_story_is_plain_lines_on_standard_error() -> None:
    report, out, err = reporter()
    state = State(NAMES)
    with report.following(state, "digits", WHY) as tell:
        state.apply({"kind": "plan", "t": 1.0, "recipe": "digits", "steps": 600, "samples": 1437})
        tell([])
        tell([])
    assert text(err).splitlines() == [
        f"muster   master + 2 workers   digits   {WHY}",
        "training digits: 1,437 samples",
    ]
    assert text(out) == ""


def test_without_a_terminal_the_last_line_of_numbers_has_the_newest_values() -> None:
    report, _, err = reporter()
    state = State(NAMES, script=True)
    with report.following(state, "train.py", WHY) as tell:
        for step, value in ((180, 0.81), (180, 0.917)):
            state.apply({"kind": "step", "t": 1.0, "rank": 0, "node": "master", "step": step})
            state.apply({"kind": "metrics", "t": 1.0, "step": step, "loss": value})
            tags = {"val_acc": [[step, value]]}
            state.apply({"kind": "scalars", "t": 1.0, "node": "master", "file": "work/metrics.csv", "tags": tags})
            tell([])
    assert "val_acc 0.917" in text(err).splitlines()[-1]
    assert text(err).count("val_acc") == 1


def show_end(
    report: Console, result: Result, state: State, page: str = "runs/x/report.html", seconds: float = 3.0
) -> None:
    known = {"nodes": state.names, "script": state.script}
    report.result(recorded_ends.outcome_of(result, state, seconds), known, page, "runs/x")


def left_line(state: State, fetch: str) -> str:
    outcome = recorded_ends.outcome_of(Result("done"), state, 3.0)
    return lines.left_line(outcome, {"nodes": state.names, "script": state.script}, "runs/x", fetch)


def uneven() -> State:
    """A state in which rank 0 has made twelve steps, and rank 1 has batches for only eight."""
    state = State(NAMES[:2], script=True)
    for rank, step in ((0, 12), (1, 8)):
        state.apply({"kind": "step", "t": 1.0, "rank": rank, "node": NAMES[rank], "step": step})
    state.apply({"kind": "metrics", "t": 1.0, "step": 12, "loss": 3.19})
    return state


def test_a_loss_beyond_the_slowest_rank_is_shown_with_its_step() -> None:
    report, out, err = reporter()
    state = uneven()
    with report.following(state, "train.py", WHY):
        pass
    assert text(err).splitlines()[-1] == "step 8   loss 3.19 at step 12"
    assert rendered(state)[4] == "  loss 3.19 ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ 3.19", "of rank 0, whose own step is in its row"
    show_end(report, Result("done"), state, "r.html")
    assert text(out).startswith("done  at step 8, the furthest rank at 12   3.0 s")


def test_the_result_is_data_and_names_the_page() -> None:
    report, out, _ = reporter()
    state = training()
    state.apply({"kind": "evaluated", "t": 5.0, "step": 600, "samples": 360, "values": {"accuracy": 0.9889}})
    show_end(report, Result("done", step=600), state, seconds=21.4)
    first, second = text(out).splitlines()
    assert first == "done  98.9 % of 360 held-out samples   21.4 s   runs/x/report.html"
    assert "5,410 samples/s" in second
    assert "runs/x/" in second


@pytest.mark.parametrize("verdict", ["failed", "refused"])
def test_a_failed_run_says_why_and_what_to_do(verdict: str) -> None:
    report, out, err = reporter()
    result = Result(verdict, "worker-2 (rank 2) was killed by SIGKILL at step 240", "do this")
    show_end(report, result, State(NAMES))
    assert text(err) == "error: worker-2 (rank 2) was killed by SIGKILL at step 240\nhint: do this\n"
    assert text(out).startswith(f"{verdict}  before the first step   3.0 s   runs/x/report.html")


def test_the_result_of_a_failed_script_without_steps_names_no_step() -> None:
    report, out, _ = reporter()
    state = State(NAMES, script=True)
    show_end(report, Result("failed", "train.py ended with code 3"), state, "r.html")
    assert text(out).startswith("failed  3.0 s   r.html")


def test_a_fault_names_its_place_when_its_words_do_not() -> None:
    report, _, err = reporter()
    result = Result("failed", "the disk is full", "free some space", node="worker-2", rank=2)
    show_end(report, result, State(NAMES))
    assert text(err).startswith("error: worker-2 (rank 2): the disk is full")


def test_a_stopped_run_says_at_which_step_and_how_to_resume() -> None:
    report, out, err = reporter()
    result = Result(
        "stopped", "stopped at step 240, checkpoint: runs/x/checkpoints/step-00000240", "`muster up --resume x`"
    )
    show_end(report, result, State(NAMES))
    assert text(out).startswith("stopped  at step 240, checkpoint: runs/x")
    assert text(err) == "hint: `muster up --resume x`\n"
    show_end(report, Result("stopped", "stopped"), State(NAMES))
    assert "stopped  3.0 s   runs/x/report.html" in text(out)


def test_json_puts_every_event_and_the_result_on_standard_output() -> None:
    report, out, err = reporter(as_json=True)
    state = State(NAMES)
    events: list[dict[str, Any]] = [{"kind": "step", "t": 1.0, "rank": 0, "node": "master", "step": 5}]
    with report.following(state, "digits", WHY) as tell:
        tell(events)
    report.result({"verdict": "done", "seconds": 1.0}, {}, "p", "f")
    printed = [json.loads(line) for line in text(out).splitlines()]
    assert printed == [*events, {"kind": "result", "verdict": "done", "seconds": 1.0, "report": "p", "folder": "f"}]
    assert text(err) == ""


def test_json_has_the_lines_that_a_person_is_shown_with_their_cause_and_culprit() -> None:
    report, out, _ = reporter(as_json=True)
    state = training()
    with report.following(state, "train.py", WHY) as tell:
        told = len(text(out).splitlines())
        trouble = Finding(Cause.LOCKED_UP, "rank 1 (worker-1) is stuck in train.py:48", "worker-1", 1)
        state.story.tell(Happening(9.0, trouble.message, grave=True, trouble=trouble))
        tell([])
    rows = [json.loads(line) for line in text(out).splitlines()[told:]]
    assert [row for row in rows if row["kind"] == "story" and row["grave"]] == [
        {
            "kind": "story",
            "t": 9.0,
            "text": trouble.message,
            "grave": True,
            "trouble": {**asdict(trouble), "cause": "locked-up"},
            "restart": False,
            "moves": False,
        }
    ]


def test_a_reader_that_goes_away_silences_the_report_and_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    report = Console()
    state = State(NAMES)
    with report.following(state, "digits", WHY) as tell:
        tell([])
        report.note("nobody reads this")
    assert report.gone


def test_an_error_is_two_lines_on_standard_error() -> None:
    report, out, err = reporter()
    report.error(DeployError("here: [this] " + "x" * 200, "do that"))
    assert text(err) == "error: here: [this] " + "x" * 200 + "\nhint: do that\n"
    assert text(out) == ""


def test_runs_are_listed_in_columns() -> None:
    report, out, _ = reporter()
    runs = [
        RunFacts("a-digits", "done", 0.989, 600, 21.4, 3_200_000),
        RunFacts("b", "unfinished", None, None, None, 12),
    ]
    report.table(tables.FOLDERS_HEAD, tables.folder_rows(runs))
    first, second = text(out).splitlines()
    assert first.split() == ["a-digits", "done", "98.9", "%", "step", "600", "21.4", "s", "3.2", "MB"]
    assert second.split() == ["b", "unfinished", "12", "B"]


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([3.0, 2.0, 1.0, 0.0], 4, "█▆▃▁"),
        ([1.0], 3, "▁▁▁"),
        ([5.0, 5.0], 2, "▁▁"),
        ([8.0, 0.0], 4, "██▁▁"),
        ([5e-324, 0.0], 2, "█▁"),
        ([float("nan"), float("inf"), 1.5e308, -1.5e308], 4, ""),
        ([], 4, ""),
    ],
)
def test_a_sparkline_keeps_its_width(values: list[float], width: int, bars: str) -> None:
    assert lines.sparkline(values, width) == bars


@pytest.mark.parametrize(("seconds", "shown"), [(7.2, "0:07"), (750, "12:30"), (11100, "3:05:00"), (-1, "0:00")])
def test_time_left_reads_as_a_clock(seconds: float, shown: str) -> None:
    assert lines.clock(seconds) == shown


def test_if_the_reader_of_a_pipe_leaves_messages_still_reach_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    report = Console(err=(err := console()))
    report.line("data")
    assert report.gone
    report.warn("the run continues. To come back: muster attach")
    assert "muster attach" in text(err)


def test_a_question_appears_below_the_view_and_nothing_overwrites_it(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _, err = reporter(terminal=True)
    shown: list[str] = []

    class Answer(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, size: int = -1) -> str:
            shown.append(text(err))
            return "yes\n"

    monkeypatch.setattr(sys, "stdin", Answer())
    with report.following(training(), "digits", WHY) as tell:
        tell([])
        assert report.ask("stop the run?")
        assert shown[0].endswith("stop the run? [y/N] "), "the view was drawn behind the question"
        tell([])
    assert text(err).count("stop the run?") == 1
    again = text(err).partition("stop the run? [y/N] ")[2]
    assert "\x1b[1A" not in again.partition("muster")[0], "the next view was drawn over the question"


@pytest.mark.parametrize("shown", [True, False])
def test_a_traceback_that_was_just_shown_is_not_printed_again(shown: bool) -> None:
    trace = "    Traceback (most recent call last):\n      File x\n    KeyError: 'image'"
    message = f"train.py ended with 1: KeyError: 'image'\n{trace}"
    assert lines.without_traceback(message, ["step 1", "KeyError: 'image'"] if shown else ["step 1"]) == (
        "train.py ended with 1: KeyError: 'image'" if shown else message
    )
    assert lines.without_traceback("the node is lost", ["the node is lost"]) == "the node is lost"


def test_a_narrow_table_drops_empty_columns_and_cuts_only_the_last() -> None:
    report, out, _ = reporter(terminal=True, width=86)
    head = ("host", "run", "state", "step", "rate", "GPU", "last line")
    run, line = "2026-11-30-0041-train-e455", "epoch 3: loss 0.25"
    report.table(head, [(host, run, "up 2 minutes", "step 1174", "8.9 steps/s", "", line) for host in ("a", "b")])
    shown = text(out).splitlines()
    assert shown[0].split() == ["host", "run", "state", "step", "rate", "last", "line"]
    assert all(row.endswith("step 1174  8.9 steps/s  epoch 3: loss…") for row in shown[1:])


def test_the_last_view_shows_the_story_uncut() -> None:
    report, _, err = reporter(terminal=True, width=60)
    state, words = training(), "the script starts over from the beginning: it loaded no checkpoint, which is read by"
    with report.following(state, "digits", WHY) as tell:
        state.story.tell(Happening(9.0, words))
        tell([])
    assert re.search(r"\n  \d\d:\d\d:\d\d  the script starts over from .*…", text(err))
    assert words in " ".join(text(err).rpartition("muster   ")[2].split())


def test_a_command_names_its_step_until_it_prints_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OPENING_S", 0.01)
    report, _, err = reporter(terminal=True)
    step = "connecting"
    with report.opening(lambda: step):
        until(lambda: "connecting   0 s" in text(err), "its step")
        step = "looking at the hosts"
        until(lambda: "looking at the hosts" in text(err), "its next step")
        report.note("rack-1: 3 MB sent")
        shown = text(err)
        with report.waiting("preflight"):
            pass
    assert text(err) == shown
    assert shown.endswith("rack-1: 3 MB sent\n")
    assert shown.count("\x1b[?25h") == shown.count("\x1b[?25l") == 1, "the cursor is there again"


def test_a_command_names_no_step_in_a_pipe_or_while_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OPENING_S", 0.0)
    report, _, err = reporter()
    with report.opening(lambda: "connecting"):
        time.sleep(0.05)
    assert text(err) == ""
    report, _, err = reporter(terminal=True)
    with report.opening(lambda: "connecting"):
        until(lambda: "connecting" in text(err), "its step")
        with report.below():
            left = text(err)
        time.sleep(0.3)
    assert text(err) == left


def test_the_view_leaves_room_for_the_echo_of_ctrl_c() -> None:
    report, _, err = reporter(terminal=True, width=60)
    state = training()
    with report.following(state, "digits", WHY) as tell:
        state.story.tell(Happening(9.0, "the script starts over from the beginning: it loaded no checkpoint"))
        tell([])
    shown = re.split("[\r\n]", re.sub("\x1b\\[[?0-9]*[A-Za-z]", "", text(err)))
    assert [line for line in shown if len(line) > 58] == []


def test_a_grave_line_is_uncut_if_the_terminal_has_room() -> None:
    state = training()
    words = "rank 1 (worker-1) is stuck in train.py:48 for 25 s; rank 0 waits for it in all_reduce, train.py:60"
    state.story.tell(Happening(9.0, words, grave=True))
    assert words in " ".join(" ".join(rendered(state, 60)).split())
    assert words not in " ".join(" ".join(rendered(state, 60, height=16)).split())


def test_a_pipe_that_is_coloured_has_each_row_on_one_line(monkeypatch, capsys) -> None:
    """FORCE_COLOR, set by many CI systems, made a pipe a terminal of 80 columns: names were cut, the view redrawn."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    Console().table(("run", "state"), [("r" * 200, "unfinished")])
    assert capsys.readouterr().out == f"{'r' * 200}   unfinished\n"


@pytest.mark.parametrize(("kind", "draws"), [("xterm", True), ("dumb", False)])
def test_a_terminal_without_cursor_movement_gets_plain_lines(monkeypatch, kind: str, draws: bool) -> None:
    """Earlier, the view stayed empty on such a terminal, for example in an Emacs shell, until the run had ended."""
    monkeypatch.setenv("TERM", kind)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Console().following(State(NAMES), "digits", WHY):
        pass
    assert ("\x1b[" in terminal.getvalue()) == draws
    assert "master + 2 workers" in terminal.getvalue()


@pytest.mark.parametrize(("state", "word"), [("lost", "lost"), ("exited", "ended"), ("running", "runs rank 0")])
def test_the_row_of_a_node_that_is_gone_says_so(state: str, word: str) -> None:
    """Earlier, the row of a lost node still said "runs rank 0" if no steps were seen, while the other nodes trained."""
    run = State(("a", "b"), script=True)
    run.apply({"kind": "began", "t": 1.0, "rank": 0, "node": "a"})
    run.apply({"kind": "node", "t": 2.0, "node": "a", "state": state})
    assert lines.node_word("a", run) == word


def test_the_row_of_a_lost_node_shows_no_old_steps() -> None:
    run = State(("a", "b"))
    for step in range(1, 4):
        run.apply({"kind": "step", "t": float(step), "rank": 1, "node": "b", "step": step, "ms": 10.0})
    run.apply({"kind": "node", "t": 9.0, "node": "b", "state": "lost"})
    assert [cell.plain.strip() for cell in live_view._node_row("b", run, run.ranks.view_of("b"), {})] == ["b", "lost"]


def test_a_person_at_a_dumb_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for name in ("stdin", "stderr"):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, name, terminal)
    assert Console().asks


def test_a_loss_that_is_no_number_is_json_for_any_reader() -> None:
    """Earlier it was a bare NaN, and jq and every browser refused the line."""
    report, out, _ = reporter(as_json=True)
    report.data({"kind": "metrics", "step": 3, "loss": float("nan"), "eval": {"best": float("inf"), "acc": 0.5}})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    said = json.loads(text(out), parse_constant=refuse)
    assert said == {"kind": "metrics", "step": 3, "loss": None, "eval": {"best": None, "acc": 0.5}}
