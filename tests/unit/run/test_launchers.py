"""A command that starts its ranks itself takes no rank number of another node, so messages name the right host."""

import json

import pytest

from deploy.report.page import data
from deploy.report.page import run as page
from deploy.run.progress import State

T = 1_795_900_000.0


def of(kind, rank, node, t=0.0, **more):
    return {"kind": kind, "rank": rank, "node": node, "t": T + t, **more}


def command(kind, place, node, t=0.0, **more):
    return of(kind, place, node, t, launcher=True, **more)


BEGINS = [command("began", place, f"lab-{place + 1}", world=2, attempt=0, pid=15) for place in (0, 1)]
STARTS = [of("started", rank, f"lab-{rank // 2 + 1}", 5.0, world=4, attempt=0, pid=40 + rank) for rank in range(4)]
ENDS = [
    command("ended", place, f"lab-{place + 1}", 9.0, world=2, attempt=0, pid=15, code=place, how="", victim=False)
    for place in (0, 1)
]


@pytest.fixture
def state():
    made = State(("lab-1", "lab-2"), script=True)
    made.takes = lambda *events: [made.apply(event) for event in events]
    return made


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]])
def test_two_ranks_on_each_of_two_nodes_are_assigned_to_the_right_nodes(state, order):
    state.takes(*BEGINS, *(STARTS[rank] for rank in order))
    assert {rank: view.node for rank, view in state.ranks.views.items()} == {
        0: "lab-1", 1: "lab-1", 2: "lab-2", 3: "lab-2"
    }  # fmt: skip
    assert state.ranks.began == {0: "lab-1", 2: "lab-2"}, "the commands, by the first rank of each"
    state.takes(*ENDS)
    assert {rank: (end.node, end.code) for rank, end in state.ranks.ends.items()} == {0: ("lab-1", 0), 2: ("lab-2", 1)}


def test_a_command_with_several_ranks_is_named_by_its_node_alone(state):
    state.takes(*BEGINS, *STARTS)
    assert [state.ranks.node_name(name) for name in state.names] == ["lab-1", "lab-2"]
    verdict = {"kind": "verdict", "verdict": "failed", "code": 1, "rank": 1, "node": "lab-2", "t": T + 9, "since": 0.0}
    state.takes({**verdict, "message": "bash ended with code 1", "hint": ""})
    assert state.verdicts[0]["rank"] is None


def test_a_command_with_one_rank_keeps_the_number_of_that_rank(state):
    starts = [of("started", rank, f"lab-{rank + 1}", 5.0, world=2, attempt=0, pid=40) for rank in range(2)]
    state.takes(*BEGINS, *starts, *ENDS)
    assert state.ranks.began == {0: "lab-1", 1: "lab-2"}
    assert state.ranks.node_name("lab-2") == "lab-2 (rank 1)"


def test_a_command_whose_ranks_never_started_takes_no_other_nodes_rank_number(state):
    state.takes(*BEGINS, *STARTS[:2], ENDS[1])
    assert state.ranks.began == {0: "lab-1", 2: "lab-2"}
    assert state.ranks.views[1].node == "lab-1"
    assert state.ranks.ends[2].node == "lab-2"


def test_the_page_shows_each_rank_on_its_host(tmp_path):
    """Fetched files: if two hosts have a file of the same name, one host's file is in a separate folder."""
    (tmp_path / "record.json").write_text('{"format": 1}')
    for folder, event in [
        *(("", event) for event in (BEGINS[0], STARTS[0], BEGINS[1], STARTS[2], STARTS[3], *ENDS)),
        ("hosts/lab-1", STARTS[1]),
    ]:
        path = tmp_path / folder / f"ranks/rank-{event['rank']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(event) + "\n")
    events = data.load(tmp_path).events
    assert {(event["rank"], event["node"]) for event in events if event["kind"] == "ended"} == {
        (0, "lab-1"),
        (2, "lab-2"),
    }
    assert {(event["rank"], event["node"]) for event in events if event["kind"] == "started"} == {
        (0, "lab-1"), (1, "lab-1"), (2, "lab-2"), (3, "lab-2")
    }  # fmt: skip


@pytest.mark.parametrize("file", ["metrics.jsonl", "nodes/a.json"])
def test_an_unknown_launcher_in_a_scripts_line_stops_no_reader(tmp_path, file):
    for folder in ("nodes", "ranks"):
        (tmp_path / folder).mkdir()
    (tmp_path / file).write_text('{"step": 1, "launcher": true, "rank": "x", "node": "a"}\n')
    (tmp_path / "ranks/rank-0.jsonl").write_text(json.dumps(STARTS[0]) + "\n")
    assert "lab-1" in page.build(tmp_path)
    assert data.load(tmp_path).state.story.unread == 0


@pytest.mark.parametrize("odd", [{"node": ["lab-1"]}, {"node": {"a": 1}}, {"node": None}, {"rank": [0]}])
def test_an_odd_line_of_a_script_does_not_prevent_the_page(tmp_path, odd):
    (tmp_path / "record.json").write_text('{"format": 1}')
    path = tmp_path / "ranks/rank-0.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(event) + "\n" for event in (BEGINS[0], {**BEGINS[0], **odd}, STARTS[0])))
    assert "lab-1" in {event["node"] for event in data.load(tmp_path).events}
