"""A traceback waits for the verdict: a victim's becomes one line; the culprit's, or one that ends no rank, is shown."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.core.errors import UsageError
from deploy.report.script_lines import ScriptLines, ShownRanks, shown_ranks
from deploy.run.progress import State

LOST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in <module>',
    "    loss.backward()",
    "RuntimeError: Connection closed by peer",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "ValueError: gave up",
    "[rank0]:[W1127 12:00:00.1 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called",
]


def output(*lines: str, rank: int | None = 0, moving: bool = False) -> list[dict[str, Any]]:
    about = {"kind": "output", "t": 1.0, "node": "a", "rank": rank, "moving": moving}
    return [{**about, "line": line} for line in lines]


def run_of(*ends: tuple[int, int, bool]) -> State:
    state = State(("a", "b"), script=True)
    for rank, node in enumerate("ab"):
        state.apply({"kind": "began", "t": 1.0, "rank": rank, "node": node})
    for rank, code, victim in ends:
        state.apply({"kind": "ended", "t": 2.0, "rank": rank, "node": "ab"[rank], "code": code, "victim": victim})
    return state


def shown(state: State, *looks: tuple[float, list[dict[str, Any]]], ranks: ShownRanks | None = None) -> list[str]:
    lines = ScriptLines(ranks or ShownRanks(frozenset({0})), state)
    for now, events in looks:
        lines.add_events(events, now)
    return lines.take_lines()


def test_a_victims_traceback_becomes_one_line_once_another_rank_is_known_to_have_failed() -> None:
    told = output("step 5", *LOST)
    assert shown(run_of(), (0.0, told)) == ["step 5"], "it waits"
    lines = shown(run_of((0, 1, True), (1, -9, False)), (0.0, told))
    assert lines == ["step 5", "(rank 0 lost rank 1: the 11 lines of its traceback are in the logs)"]


def test_the_culprits_traceback_is_shown_whole_and_immediately() -> None:
    assert shown(run_of((0, 1, False), (1, 1, True)), (0.0, output(*LOST))) == LOST


def test_a_traceback_that_ends_no_rank_is_shown_with_the_lines_after_it() -> None:
    """A script may log an exception and continue."""
    assert shown(run_of(), (0.0, output(*LOST[:4], "retrying", "step 6"))) == [*LOST[:4], "retrying", "step 6"]
    assert shown(run_of(), (0.0, output(*LOST)), (9.0, [])) == LOST, "no verdict has come"


def test_if_ranks_wait_in_different_collectives_torchs_traceback_is_folded() -> None:
    """The verdict names each rank's own line; torch's timeout, 14 lines further down, is only a consequence."""
    state = run_of()
    for rank, name in enumerate(["all_reduce", "barrier"]):
        call = ["0", 2, name, "4", "train.py", 8 + rank, "main"]
        about = {"code": 1, "victim": True, "collectives": [call]}
        state.apply({"kind": "ended", "t": 2.0, "rank": rank, "node": "ab"[rank], **about})
    state.inquire(2.5)
    lines = shown(state, (0.0, output(*LOST)))
    assert lines == ["(rank 0 waited in vain: the 11 lines of its traceback are in the logs)"]


def test_if_no_rank_is_known_to_have_failed_first_nothing_is_folded() -> None:
    lines = ScriptLines(ShownRanks(frozenset({0})), run_of((0, 1, True), (1, 1, True)))
    lines.add_events(output(*LOST), 0.0)
    lines.close()
    assert lines.take_lines() == LOST


def test_tracebacks_of_ranks_shown_together_are_kept_apart() -> None:
    both = [*output(LOST[0]), *output("step 7", rank=1), *output(*LOST[1:4])]
    lines = shown(run_of((0, 1, True), (1, -9, False)), (0.0, both), ranks=ShownRanks(None))
    assert lines == ["rank 1  step 7", "(rank 0 lost rank 1: the 4 lines of its traceback are in the logs)"]


@pytest.mark.parametrize("line", ["Traceback (most recent call last):", "    more"])
def test_endless_tracebacks_fill_no_memory(line: str) -> None:
    lines = ScriptLines(ShownRanks(frozenset({0})), run_of())
    for _ in range(50):
        lines.add_events(output(LOST[0], *[line] * 200), 0.0)
    assert sum(len(held.lines) for held in lines._held.values()) <= 300
    lines.close()
    assert len(lines.take_lines()) == 50 * 201, "and no line is lost"


def test_tracebacks_of_a_command_ended_by_another_nodes_end_become_one_line() -> None:
    """`bash run.sh` starts two ranks on each node; torchrun ends the first node's ranks, which report no end."""
    state = State(("a", "b"), script=True)
    for place, node in enumerate("ab"):
        state.apply({"kind": "began", "t": 1.0, "rank": place, "node": node, "launcher": True})
    for rank in range(4):
        state.apply({"kind": "started", "t": 2.0, "rank": rank, "node": "ab"[rank // 2], "world": 4})
    ended = {"kind": "ended", "t": 3.0, "rank": 1, "node": "b", "launcher": True}
    state.apply({**ended, "code": 1, "victim": False, "error": "ValueError: bad sample 7"})
    peer, mark = LOST[:4], "[rank1]: "
    told = [*peer, *(f"{mark}{line}" for line in peer), "W1129 01:44:56.852000 25 torch/distributed/x.py:1] Received"]
    assert shown(state, (0.0, output(*told))) == [
        f"(rank 0 lost b: the {len(told)} lines of its traceback are in the logs)"
    ]


def test_the_rank_option_accepts_ranks_as_messages_name_them() -> None:
    """The view says `ranks 0-2, 5 wait for it`, but `--rank 0-2,5` was once refused."""
    assert shown_ranks("0-2, 5").numbers == {0, 1, 2, 5}
    assert shown_ranks("").numbers == {0}
    assert shown_ranks("all").numbers is None
    for text in ("2-0", "0-", "-1", "0,,1", "a", "0-2-4", "0,5-2"):
        with pytest.raises(UsageError, match="not a number"):
            shown_ranks(text)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("7", "(--rank 7: the run has 2 ranks, numbered from 0)"),
        ("2-3", "(--rank 2: the run has 2 ranks, numbered from 0)"),
        ("1,7", ""),
        ("all", ""),
        ("", ""),
    ],
)
def test_a_rank_that_the_run_does_not_have_is_reported(asked: str, line: str) -> None:
    state = run_of()
    lines, began = ScriptLines(shown_ranks(asked), state), {"kind": "began", "t": 1.0, "rank": 0, "node": "a"}
    lines.add_events([{**began, "world": 1, "launcher": True}])
    assert lines.take_lines() == [], "nobody knows yet how many there are"
    for _ in range(2):
        lines.add_events([{**began, "world": 2}])
    assert lines.take_lines() == [line] * bool(line)
    trainers = State(("a", "b"))
    trainers.apply({"kind": "started", "t": 1.0, "rank": 0, "node": "a", "world": 2})
    lines = ScriptLines(shown_ranks(asked), trainers)
    lines.add_events([])
    assert lines.take_lines() == [line] * bool(line)
