"""The machines' telemetry on the page and in the live view; malformed lines are left out."""

from __future__ import annotations

import pytest
from rich.console import Console as RichConsole

from deploy.core.errors import BadAnswer
from deploy.core.facts import NodeState
from deploy.report import compare, text
from deploy.report.live_view import view
from deploy.report.page import machines, run
from deploy.run import events
from deploy.run.follower import Follower
from deploy.run.progress import State
from tests.unit.report.test_page import HOSTILE, START, Page, charts_of, write_lines
from tests.unit.report.test_script_page import plain_run

GB = 10**9


def gpu(index, **more):
    """One GPU entry of a telemetry line."""
    return {"index": index, "name": "Fake GPU", "use_percent": 90.0, "memory_bytes": 61 * GB, "throttled": [], **more}


def line(t, **more):
    """A line of telemetry/master.jsonl."""
    usual = {"cpu_percent": 45.0, "cores": 8, "memory_bytes": 3 * GB, "memory_limit_bytes": 16 * GB}
    return {"t": START + t, "node": "master", **usual, "network": {"eth0": [2e6, 1e6]}, **more}


def state_of(*lines):
    """The state of a run that has read these lines."""
    state = State(("master", "worker-1"), script=True)
    for each in lines:
        state.apply(events.of_telemetry(each, 0.0))
    return state


def test_a_node_has_its_charts_over_time(tmp_path):
    plain_run(tmp_path)
    gpus = [gpu(0), gpu(1, use_percent=50.0, throttled=["heat"])]
    write_lines(tmp_path / "telemetry/master.jsonl", [line(t, gpus=gpus) for t in range(0, 1300, 5)])
    write_lines(tmp_path / "telemetry/worker-1.jsonl", [{**line(t), "node": "worker-1"} for t in (5, 10)])
    shown = Page(run.build(tmp_path))
    assert "The machines" in shown.text
    assert {"2 × Fake GPU", "heat 100.0 % of the time"} <= set(shown.pairs.values())
    for title in ("GPU use", "GPU memory", "CPU", "Memory", "Network eth0"):
        assert title in shown.text
    assert {chart["axis"] for chart in charts_of(shown)} == {"min"}
    series = [each for chart in charts_of(shown) for each in chart["series"]]
    assert all(len(each["points"]) <= 240 for each in series)


def test_idle_gpus_are_shown_in_the_row_of_their_host(tmp_path):
    """Earlier, the row of such a host showed its CPU, next to charts of GPUs at 0 %."""
    plain_run(tmp_path)
    idle = [line(t, gpus=[gpu(0, use_percent=0.0)]) for t in range(0, 60, 5)]
    write_lines(tmp_path / "telemetry/master.jsonl", idle)
    assert "GPU use of master: 0 to 0 %" in Page(run.build(tmp_path)).text


@pytest.mark.long
def test_each_of_many_hosts_has_a_row_of_cells_and_its_charts_below(tmp_path):
    """64 hosts have 64 rows, darker when busier; the page still opens fast, and has the charts of every host."""
    plain_run(tmp_path)
    for number in range(64):
        gpus = [gpu(0, use_percent=5.0 if t < 500 else 95.0) for t in range(0, 1000, 5)]
        lines = [{**line(5 * at, gpus=[each]), "node": f"gpu-{number}"} for at, each in enumerate(gpus)]
        write_lines(tmp_path / f"telemetry/gpu-{number}.jsonl", lines)
    shown = Page(run.build(tmp_path))
    rows = [attributes for tag, attributes in shown.tags if tag == "details" and attributes.get("class") == "host"]
    assert [row["data-key"] for row in rows] == [f"gpu-{number}" for number in sorted(range(64), key=str)]
    busy = [a["d"] for _, a in shown.tags if a.get("class") == "heat-4" and "h1M" in a["d"]]
    assert [path.split()[0] for path in busy] == ["M45"] * 64
    assert "GPU use of gpu-7: 5 to 95 %" in shown.text
    assert len(charts_of(shown)) >= 64 * 5
    assert len(run.build(tmp_path)) < 1_500_000


def test_the_page_says_how_many_hosts_it_leaves_out(tmp_path):
    plain_run(tmp_path)
    for number in range(machines.NODES + 3):
        lines = [{"t": START + t, "node": f"gpu-{number}", "cpu_percent": 1.0} for t in (1, 2)]
        write_lines(tmp_path / f"telemetry/gpu-{number}.jsonl", lines)
    assert "3 more nodes are in telemetry/" in Page(run.build(tmp_path)).text


def test_a_host_that_is_silent_for_a_while_has_a_gap_in_its_row(tmp_path):
    cells = machines._heat([(0.0, 100.0), (0.05, None), (0.5, 1.0)], 10)
    assert dict(cells["paths"]) == {4: "M0 .5h1M1 .5h1", 0: "M5 .5h1M6 .5h1"}
    assert machines._heat([], 4)["paths"] == []


def test_a_mean_is_taken_over_time_and_not_over_lines(tmp_path):
    """A third of a minute idle and slowed by heat, then two thirds at work; and a second start one day later."""
    plain_run(tmp_path)
    early = [line(t, gpus=[gpu(0, use_percent=0.0, throttled=["heat"])]) for t in range(20)]
    late = [line(t, gpus=[gpu(0, use_percent=90.0)]) for t in (*range(20, 61, 5), 86_400, 86_401)]
    write_lines(tmp_path / "telemetry/master.jsonl", [*early, *late])
    shown = Page(run.build(tmp_path)).text
    assert "GPU use of master: 0 to 90 % 61 %" in shown
    assert "heat 31.7 % of the time" in shown
    compared = {row.name: row.values for row in compare.compare([tmp_path, tmp_path]).numbers}
    assert compared["GPU use"][0] == "61.4 %"


@pytest.mark.parametrize("lines", [[], [line(1)], [line(1), {"t": "x"}], ["x", None]])
def test_without_lines_there_is_no_section(tmp_path, lines):
    plain_run(tmp_path)
    if lines:
        write_lines(tmp_path / "telemetry/master.jsonl", lines)
    assert "The machines" not in Page(run.build(tmp_path)).text


@pytest.mark.parametrize(
    "odd",
    [
        {"node": "../x"},
        {"node": HOSTILE},
        {"cpu_percent": 1e9},
        {"cpu_percent": float("nan")},
        {"memory_bytes": -1},
        {"network": {"eth0": [1]}},
        {"network": {"e" * 999: [1, 1]}},
        {"gpus": [{"use_percent": 1}]},
        {"gpus": [gpu(n) for n in range(65)]},
        {"gpus": [gpu(0, throttled=["x" * 99])]},
        {"t": -1},
    ],
)
def test_a_malformed_line_is_refused_and_left_out_of_the_page(tmp_path, odd):
    with pytest.raises(BadAnswer):
        events.of_telemetry({**line(1), **odd}, 0.0)
    plain_run(tmp_path)
    write_lines(tmp_path / "telemetry/master.jsonl", [{**line(t), **odd} for t in range(3)])
    assert "The machines" not in Page(run.build(tmp_path)).text


def test_a_nodes_text_is_escaped_on_the_page(tmp_path):
    hostile = HOSTILE[:-1][:60] + "\x1b[2J"
    plain_run(tmp_path)
    odd = {"gpus": [gpu(0, name=hostile, throttled=[hostile[:40]])], "gpu_unseen": hostile, "network": {"<b>": [1, 1]}}
    write_lines(tmp_path / "telemetry/master.jsonl", [line(t, **odd) for t in range(3)])
    source = run.build(tmp_path)
    shown = Page(source)
    assert "1 × </script>" in shown.text
    assert "Network <b>" in shown.text
    assert len(shown.scripts) == 1
    assert "\x1b" not in source


def test_telemetry_lines_become_events_but_are_no_sign_of_life_of_a_rank(tmp_path):
    write_lines(tmp_path / "telemetry/master.jsonl", [line(1), {"bad": 1}])
    events = Follower(tmp_path, from_start=True).read()
    assert sorted(event["kind"] for event in events) == ["telemetry", "unread"]
    state = State(("master",))
    for event in events:
        state.apply(event)
    assert state.ranks.last_sign == 0.0
    assert state.nodes.telemetry["master"]["cores"] == 8


def test_a_rank_cannot_pass_telemetry_off_as_an_event():
    with pytest.raises(BadAnswer):
        events.of_rank({"t": 1.0, "kind": "telemetry", "rank": 0, "node": "master"}, 0.0)


@pytest.mark.parametrize(
    ("more", "cell"),
    [
        ({"gpus": [gpu(0), gpu(1, use_percent=96.0)]}, "gpu 93 %  61.0 GB"),
        ({}, "cpu 45 %  3.0 GB"),
        ({"gpus": [{"index": 0}]}, "cpu 45 %  3.0 GB"),
        ({"gpus": [{"index": 0, "use_percent": 96.0}]}, "gpu 96 %  3.0 GB"),
    ],
)
def test_the_live_view_has_one_short_cell_for_each_node(more, cell):
    state = state_of(line(1, **more))
    assert text.machine_cell("master", state) == cell
    assert text.machine_cell("worker-1", state) == ""
    state.nodes.states["master"] = NodeState("master", "exited", 0)
    assert text.machine_cell("master", state) == ""


@pytest.mark.parametrize(("width", "visible"), [(120, True), (40, False)])
def test_the_view_shows_the_cell_only_if_it_has_room(width, visible):
    with open("/dev/null", "w") as nowhere:
        console = RichConsole(width=width, record=True, file=nowhere)
        state = state_of(line(1))
        state.ranks.began = {0: "master", 1: "worker-1"}
        console.print(view(state, "train.py", "why", width, 24))
        shown = console.export_text()
    assert ("cpu 45 %" in shown) == visible
    assert "runs rank 1" in shown


def test_a_gpu_slowed_by_heat_is_reported_once_and_a_power_cap_is_not():
    slow = line(1, gpus=[gpu(3, throttled=["power cap", "heat"])])
    state = state_of(slow, slow, {**slow, "node": "stranger"})
    assert [happening.text for happening in state.story] == ["master: GPU 3 runs slower than it could: heat"]
    assert set(state.nodes.telemetry) == {"master"}


def test_runs_with_only_one_telemetry_line_are_compared(tmp_path):
    """A run that ends after a second has one line: earlier, `muster compare` failed with a traceback then."""
    folders = [plain_run(tmp_path / name) for name in "ab"]
    for folder in folders:
        write_lines(folder / "telemetry/master.jsonl", [line(1.0, gpus=[gpu(0)])])
    values = {row.name: tuple(row.values) for row in compare.compare(folders).numbers}
    assert values["GPU use"] == ("90.0 %", "90.0 %")
