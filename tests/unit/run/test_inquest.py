"""Who broke a run first, and why, from the records of its ranks and nodes in any order of arrival."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import pytest

from deploy.causes.end_causes import Cause
from deploy.run.events import of_rank
from deploy.run.inquest import findings as inquest
from deploy.run.inquest.blame import cause_of_error
from deploy.run.inquest.causes import Finding
from deploy.run.inquest.slow import WorkTimes
from deploy.run.outcome import AT_ONCE, ENDED_AFTER_S, concluded, from_verdicts, judge
from deploy.run.progress import State

GONE = "RuntimeError: Connection closed by peer [192.168.64.3]:2034"
ADDRESSES = {f"n{rank}": f"192.168.64.{rank + 2}" for rank in range(3)}


def rank(kind: str, number: int, t: float = 100.0, **fields: Any) -> dict[str, Any]:
    """An event of a rank, as the reader that checks it returns it."""
    return of_rank({"kind": kind, "t": t, "rank": number, "node": f"n{number}", **fields}, t)


def ended(
    number: int, code: int, t: float = 100.0, error: str = "", victim: bool = False, how: str = "", **more: str
) -> dict[str, Any]:
    how = how or f"ended with code {code}"
    return rank("ended", number, t, code=code, error=error, victim=victim, how=how, **more)


def stuck(number: int, doing: str = "backward", t: float = 100.0, **fields: Any) -> dict[str, Any]:
    return rank("stuck", number, t, doing=doing, since_s=8.0, file="train.py", line=7, **fields)


def links(number: int, *peers: int, kind: str = "unanswered", t: float = 100.0) -> dict[str, Any]:
    ends = [[ADDRESSES[f"n{number}"], ADDRESSES[f"n{peer}"]] for peer in peers]
    return rank("links", number, t, **{"unanswered": [], "crowded": [], kind: ends})


def node(name: str, trouble: str = "", t: float = 100.0, restarts: int = 0) -> dict[str, Any]:
    return {"kind": "node", "t": t, "node": name, "state": "running", "trouble": trouble, "restarts": restarts}


def run_of(*events: dict[str, Any]) -> State:
    """The records of a run of three ranks."""
    evidence = State(tuple(ADDRESSES))
    for name, address in ADDRESSES.items():
        evidence.apply({"kind": "node_up", "t": 1.0, "node": name, "address": address}, 1.0)
    for event in (*(rank("began", number, 1.0) for number in range(3)), *events):
        evidence.apply(event, float(event["t"]))
    return evidence


def first(*events: dict[str, Any], now: float = 130.0) -> Finding:
    found = inquest.findings(run_of(*events), now)
    assert found, "nothing was found"
    return found[0]


@pytest.mark.parametrize(
    ("events", "cause", "culprit"),
    [
        ([ended(0, 1, 100.2, GONE, True), ended(1, -9, 100.3, how="was killed by SIGKILL")], Cause.KILLED, "n1"),
        ([ended(1, -9, cause="container-out-of-memory")], Cause.CONTAINER_MEMORY, "n1"),
        ([ended(1, -9, cause="host-out-of-memory")], Cause.HOST_MEMORY, "n1"),
        ([ended(1, -9, cause="locked-up")], Cause.LOCKED_UP, "n1"),
        ([ended(1, -9, cause="stopped")], Cause.STOPPED, "n1"),
        ([ended(1, -9, cause="a-newer-one")], Cause.KILLED, "n1"),
        ([ended(1, -9, how="was killed by SIGKILL (out of memory on its host)")], Cause.KILLED, "n1"),
        ([ended(2, 1, 100.0, "ValueError: b"), ended(0, 1, 99.0, GONE, True)], Cause.EXCEPTION, "n2"),
        ([ended(2, 1, 100.0, "OSError: [Errno 28] No space left on device")], Cause.DISK_FULL, "n2"),
        ([ended(2, 1, 100.0, "RuntimeError: [enforce fail] . unexpected pos 64 vs 0")], Cause.DISK_FULL, "n2"),
        ([ended(1, 3)], Cause.LEFT_EARLY, "n1"),
        ([ended(1, 0), ended(0, 1, 101.0, GONE, True)], Cause.LEFT_EARLY, "n1"),
        ([ended(1, 0), stuck(0), stuck(2)], Cause.LEFT_EARLY, "n1"),
        ([stuck(1, "stopped")], Cause.STOPPED, "n1"),
        ([stuck(1, "traced", tracer="gdb, pid 7"), stuck(0), stuck(2)], Cause.STOPPED, "n1"),
        ([stuck(1, "frozen"), stuck(0), stuck(2)], Cause.STOPPED, "n1"),
        ([rank("throttled", 1, percent=97.0, cpus=0.1)], Cause.SLOW, "n1"),
        ([stuck(0), stuck(2), stuck(1, "script")], Cause.LOCKED_UP, "n1"),
        ([stuck(0), stuck(2), stuck(1, "computes")], Cause.LOCKED_UP, "n1"),
        ([stuck(0), stuck(2, "lock"), stuck(1, "lock", error="ValueError: bad")], Cause.EXCEPTION, "n1"),
        ([stuck(0), stuck(2), stuck(1, "replaced", program="sleep")], Cause.LOCKED_UP, "n1"),
        ([node("n1", "paused"), stuck(0), stuck(2)], Cause.STOPPED, "n1"),
        ([stuck(1, "disk", disk="/data/x on /data (nfs4 server:/export)")], Cause.DISK_SILENT, "n1"),
        ([node("n1", "closed"), ended(0, 1, 101.0, GONE, True)], Cause.SET_UP, "n1"),
        ([node("n1", "gone")], Cause.NODE_LOST, "n1"),
        ([node("n1", "unseen"), stuck(0), stuck(2)], Cause.NODE_LOST, "n1"),
        ([node("n1", "unseen"), links(0, 1), links(2, 1)], Cause.NODE_LOST, "n1"),
        ([links(0, 1), links(1, 0, 2)], Cause.CUT_OFF, "n1"),
    ],
)
def test_the_first_cause_and_its_culprit_are_named(events: list[dict[str, Any]], cause: Cause, culprit: str) -> None:
    finding = first(*events)
    assert (finding.cause, finding.node) == (cause, culprit)
    assert culprit in finding.message


def test_an_end_is_reported_with_its_exception_or_as_without_one() -> None:
    assert first(ended(1, 3)).message == "n1 (rank 1) ended with code 3 without an exception"
    assert first(ended(1, 3, error="KeyError: 'x'")).message == "n1 (rank 1) ended with code 3: KeyError: 'x'"
    assert first(ended(1, -9, how="was killed by SIGKILL")).message == "n1 (rank 1) was killed by SIGKILL"


def test_if_all_ranks_wait_alike_no_rank_is_named_but_the_last_step_is() -> None:
    finding = first(*(stuck(number, step=7 + number) for number in range(3)))
    assert (finding.cause, finding.node, finding.rank) == (Cause.NOT_KNOWN, "", None)
    assert finding.message.startswith("no rank has made a step since step 9: all ranks wait in backward")


def test_a_failed_link_is_reported_with_both_ends_once_others_had_time_to_report_it() -> None:
    events = [links(1, 2), stuck(0), stuck(1), stuck(2)]
    finding = first(*events)
    assert (finding.cause, {finding.node, finding.other}) == (Cause.CUT_OFF, {"n1", "n2"})
    assert not inquest.findings(run_of(*events), 101.0)


def test_a_first_host_is_lost_if_the_other_nodes_restart_without_it() -> None:
    known = [node("n1", t=2.0), node("n2", t=2.0)]
    again = [node("n0", "unseen"), node("n1", t=101.0, restarts=1), node("n2", t=102.0, restarts=1)]
    finding = first(*known, *again)
    assert (finding.cause, finding.node, finding.rank) == (Cause.NODE_LOST, "n0", 0)
    trains = rank("step", 1, 103.0, step=9)
    assert not inquest.findings(run_of(*known, *again, trains), 130.0), "they train without it"


def test_a_node_that_restarts_is_not_blamed_for_its_end() -> None:
    state = State(("n0", "n1", "n2"))
    for event in (
        *(rank("began", number, 1.0) for number in range(3)),
        rank("step", 1, 90.0, step=9),
        node("n1", t=2.0),
    ):
        state.apply(event)
    state.apply({**node("n1", t=101.0, restarts=1), "code": 1})
    assert not state.story, "it may be back only to repeat how the run ended"
    state.apply(rank("began", 1, 104.0))
    assert [(line.t, line.text, line.grave) for line in state.story] == [(101.0, "n1 restarts at step 9", False)]


def test_several_lost_hosts_are_one_finding_and_if_this_machine_is_offline_there_is_none() -> None:
    away = [node("n0", "unseen"), node("n1", "unseen", 101.0)]
    finding = first(*away, stuck(2))
    assert finding.cause == Cause.NODE_LOST
    assert "n0 (rank 0) and n1 (rank 1) are lost" in finding.message
    assert not inquest.findings(run_of(*away, node("n2", "unseen"), stuck(2)), 130.0)


def test_the_first_of_several_lost_hosts_is_the_culprit_and_the_shortest_silence_is_given() -> None:
    finding = first(node("n2", "unseen", 60.0), node("n1", "unseen", 120.0), stuck(0))
    assert (finding.node, finding.rank) == ("n2", 2)
    assert "they have not answered for 14 s or longer, and rank 0 waits for them" in finding.message


def test_a_host_with_only_a_silent_engine_is_no_suspect_but_a_silent_host_is() -> None:
    # watch.py sets no `trouble` for a node that keeps running without its engine.
    finding = first(node("n2"), node("n1", "unseen", 120.0), stuck(0), stuck(2))
    assert (finding.node, finding.message) == (
        "n1",
        "n1 (rank 1) is lost: it has not answered for 14 s, and ranks 0, 2 wait for it",
    )


def test_a_lifeless_node_with_a_silent_engine_is_lost_with_a_message_of_its_own() -> None:
    silence = "n1 (rank 1) is lost: its Docker engine does not answer, and its node has written nothing for 29 s"
    lifeless, victim = node("n1", "lifeless", 121.0), ended(2, 1, 101.0, GONE, True)
    assert first(lifeless, victim).message == f"{silence}, and rank 2 lost it"
    earlier = ended(2, 1, 90.0, GONE, True)
    assert not inquest.findings(run_of(earlier, lifeless), 130.0), "rank 2 lost another one: this one still wrote"
    assert first(lifeless, stuck(0), stuck(2)).message == f"{silence}, and ranks 0, 2 wait for it"


def test_a_node_with_a_silent_engine_is_lost_if_the_others_restarted_without_it() -> None:
    ends = [ended(number, 1, 101.0, GONE, True) for number in (1, 2)]
    known = [node("n1", t=2.0), node("n2", t=2.0)]
    finding = first(*known, *ends, node("n2", t=102.0, restarts=1), node("n1", "lifeless", 121.0))
    assert (finding.node, finding.message.rpartition(", and ")[2]) == ("n1", "n2 started again without it")


def test_a_stopped_rank_answers_no_look_and_is_still_reported_as_stopped() -> None:
    findings = inquest.findings(run_of(stuck(1, "stopped"), stuck(1, "unseen", 110.0), stuck(0), stuck(2)), 130.0)
    assert [finding.cause for finding in findings] == [Cause.STOPPED]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("paused", "n1 is no longer paused, after 20 s"), ("unseen", "n1 answers again")],
)
def test_the_end_of_a_pause_or_silence_is_reported_if_its_beginning_was(trouble: str, words: str) -> None:
    state = State(("n0", "n1", "n2"))
    for event in (*(rank("began", number, 1.0) for number in range(3)), node("n1", trouble), stuck(0), stuck(2)):
        state.apply(event)
    state.inquire(101.0)
    state.inquire(115.0)
    state.apply(node("n1", t=120.0))
    assert state.story[-1].text == words
    state.inquire(120.5)
    state.apply(node("n1", trouble, t=121.0))
    state.inquire(122.0)
    before = len(state.story)
    state.apply(node("n1", t=123.0))
    assert len(state.story) - before == (trouble == "paused"), "a short silence was not told of, and so its end is not"


def test_a_node_that_reaches_nobody_is_named_even_if_it_only_sends_to_one() -> None:
    def called(number: int, cut: int, silent: tuple[int, ...], answering: tuple[int, ...]) -> dict[str, Any]:
        ends = {name: links(number, *of)["unanswered"] for name, of in (("silent", silent), ("answering", answering))}
        return {**links(number, cut), **ends}

    finding = first(called(2, 0, (0, 1), ()), called(0, 2, (2,), (1,)))
    assert (finding.cause, finding.node, finding.other) == (Cause.CUT_OFF, "n2", "")
    one_link = first(called(2, 0, (0,), (1,)), called(0, 2, (2,), (1,)))
    assert {one_link.node, one_link.other} == {"n0", "n2"}
    drops_calls = first(called(2, 0, (0, 1), ()), called(0, 2, (1, 2), ()))
    assert {drops_calls.node, drops_calls.other} == {"n0", "n2"}, "a firewall may drop what nobody needs"


def test_an_unreachable_outside_server_is_not_a_node_that_is_cut_off() -> None:
    def lost(address: str) -> dict[str, Any]:
        return {**links(0), "unanswered": [[ADDRESSES["n0"], address]]}

    assert not inquest.findings(run_of(lost("35.186.228.49")), 130.0)
    assert "10.0.0.9" in first(lost("10.0.0.9")).message, "a second network of the hosts, as far as anybody knows"
    state = State(("n0", "n1", "n2"), 20.0)
    up = [{"kind": "node_up", "t": 1.0, "node": name} for name in state.names]
    for event in (*up, *(rank("began", number, 1.0) for number in range(3)), lost("10.0.0.9")):
        state.apply(event)
    state.inquire(110.0)
    assert judge(state, 0.0, 150.0) is None


def test_victims_alone_and_moving_ranks_give_no_finding() -> None:
    assert not inquest.findings(run_of(ended(0, 1, 100.0, GONE, True)), 130.0)
    assert not inquest.findings(run_of(stuck(0), stuck(2)), 130.0)
    assert not inquest.findings(run_of(node("n1", "unseen")), 130.0), "it may train on while we do not see it"


def test_long_work_between_steps_is_no_fault_while_no_rank_waits_for_it() -> None:
    loops = [stuck(rank, "computes") for rank in range(3)]
    assert not inquest.findings(run_of(*loops), 130.0)
    assert inquest.findings(run_of(*loops[:2], stuck(2)), 130.0), "rank 2 waits for the others"


def test_a_rank_that_reports_why_it_failed_has_not_left_early() -> None:
    left = [ended(1, 0), stuck(0), stuck(2)]
    failed, done = ({"kind": "verdict", "t": 99.0, "node": "n1", "verdict": word} for word in ("failed", "done"))
    assert not inquest.findings(run_of(failed, *left), 130.0)
    assert first(done, *left).cause == Cause.LEFT_EARLY


def of_roles(*events: dict[str, Any]) -> State:
    """The records of a run with a trainer of two ranks and a server."""
    evidence = State(tuple(ADDRESSES), script=True, roles={"n0": "trainer", "n1": "trainer", "n2": "server"})
    for event in (*(rank("began", number, 1.0) for number in range(3)), *events):
        evidence.apply(event, float(event["t"]))
    return evidence


def test_a_server_that_waits_for_requests_neither_hangs_nor_was_left_by_the_trainer() -> None:
    waits = stuck(2, "lock")
    assert not inquest.findings(of_roles(waits, ended(0, 0), ended(1, 0)), 130.0)
    assert not inquest.findings(of_roles(stuck(2), ended(0, 0), ended(1, 0)), 130.0)
    lost = ended(2, 1, 101.0, error=GONE, victim=True)
    assert all(each.rank == 2 for each in inquest.findings(of_roles(lost, ended(0, 0), ended(1, 0)), 130.0))


def test_ranks_of_the_trainer_that_hang_are_named_whatever_the_servers_do() -> None:
    (hangs,) = inquest.findings(of_roles(stuck(0, "data", step=4), stuck(1, step=4)), 130.0)
    assert hangs.rank == 0
    assert "ranks" not in hangs.message.partition(":")[0].replace("no rank", "")
    (left,) = inquest.findings(of_roles(ended(0, 0), stuck(1)), 130.0)
    assert (left.cause, left.rank) == (Cause.LEFT_EARLY, 0)


def test_the_first_of_two_faults_in_time_is_the_verdict() -> None:
    late = ended(0, -9, 103.0, how="was killed by SIGKILL")
    assert first(late, node("n1", "paused", 101.0)).node == "n1"
    assert first(late, node("n1", "paused", 104.0)).node == "n0"


@pytest.mark.parametrize(("t", "rank"), [(99.0, 1), (101.0, None)])
def test_a_rank_stopped_after_another_lost_its_peer_is_not_the_cause(t: float, rank: int | None) -> None:
    """If it was stopped earlier, by somebody, it is what the others lost."""
    stop = ended(1, -15, t, how="was ended by the request to stop (SIGTERM)", cause="ended-from-outside")
    lost = [ended(number, 1, 100.0, error=GONE, victim=True) for number in (0, 2)]
    state = run_of(stop, *lost)
    assert [finding.rank for finding in inquest.findings(state, 130.0)] == ([] if rank is None else [rank])
    assert ("did not answer" in state.blame().message) == (rank is None)


def test_ranks_that_failed_in_different_collectives_are_compared() -> None:
    def failed(number: int, size: str) -> dict[str, Any]:
        calls = [["0", 7, "all_reduce", size, "train.py", 9, "main"]]
        return rank("ended", number, 100.0 + number, code=1, error=GONE, victim=True, collectives=calls)

    finding = first(failed(0, "3"), failed(1, "9"), failed(2, "3"))
    assert (finding.cause, finding.rank) == (Cause.MISMATCH, 1)
    tie = first(failed(0, "3"), failed(1, "9"))
    assert (tie.cause, tie.rank) == (Cause.MISMATCH, None)
    # At a stop, each rank ends wherever SIGTERM reaches it, and the others lose it at that point.
    asked = ended(1, -15, 99.5, how="was killed by SIGTERM")
    assert [each.cause for each in inquest.findings(run_of(asked, failed(0, "3"), failed(2, "9")), 130.0)] == [
        Cause.KILLED
    ]
    much_later = ended(1, -15, 120.0, how="was killed by SIGTERM")
    assert first(failed(0, "3"), failed(2, "9"), much_later).cause == Cause.MISMATCH, "that stop only ends what broke"


def test_if_all_ranks_wait_alike_the_cause_is_not_known() -> None:
    assert first(stuck(0), stuck(1), stuck(2)).cause == Cause.NOT_KNOWN


def test_a_hang_names_the_last_step_and_is_reported_once_per_step() -> None:
    still = [stuck(0, "data", step=4), stuck(1, step=4), stuck(2, step=4)]
    assert "no rank has made a step since step 4: " in first(*still).message
    state = run_of()
    for _ in range(2):
        for event in still:
            state.apply(event, 100.0)
        state.inquire(130.0)
        state.apply(rank("moves", 0, 131.0), 131.0)
        state.inquire(131.0)
    told = [line for line in state.story if "since step 4" in line.text]
    assert len(told) == 1
    state.apply(rank("step", 0, 140.0, step=5), 140.0)
    for event in still:
        state.apply({**event, "step": 5, "t": 141.0}, 141.0)
    state.inquire(170.0)
    assert [line for line in state.story if "since step 5" in line.text]


def test_a_new_start_of_the_ranks_clears_earlier_findings() -> None:
    evidence = run_of(
        ended(1, -9, how="was killed by SIGKILL"), *(rank("began", number, 110.0) for number in (1, 0, 2))
    )
    assert not inquest.findings(evidence, 130.0)


def paces(number: int, own: float, wait: float, data: float = 0.0) -> list[dict[str, Any]]:
    times = {"compute_ms": own - data, "data_ms": data, "wait_ms": wait, "step_ms": own + wait, "count": 5}
    return [rank("step", number, 100.0 + second, step=second, **times) for second in range(1, 12)]


def test_a_rank_that_the_others_wait_for_is_slow_and_the_message_says_at_what() -> None:
    finding = first(*paces(0, 20, 180), *paces(1, 200, 2), *paces(2, 22, 178))
    assert (finding.cause, finding.rank, finding.lasting) == (Cause.SLOW, 1, True)
    assert ": it computes for 200 ms of each of its last 40 steps, the others for 21 ms" in finding.message
    assert finding.t == 104.0, "the first of the reports that show it"
    assert "waits for its data" in first(*paces(0, 20, 180), *paces(1, 200, 2, 190), *paces(2, 22, 178)).message


@pytest.mark.parametrize("size", [2, 3, 4, 9, 10])
def test_each_rank_is_compared_with_the_median_of_all_others(size: int) -> None:
    for seed in range(50):
        drawn = random.Random(seed)
        own = {rank: drawn.choice((1.0, 10.0, 20.0, 50.0, 300.0)) for rank in range(size)}
        works = WorkTimes(own, own)
        for rank in own:
            usual = median(own[each] for each in own if each != rank)
            is_slow = own[rank] >= 2 * usual and own[rank] - usual >= 5
            found = works.slow(rank, 2.0)
            assert (found and found.usual_ms) == (usual if is_slow else None)
    assert WorkTimes({0: 9.0}, {0: 9.0}).slow(0) is None


def test_long_steps_are_compared_too_and_one_pause_makes_no_rank_slow() -> None:
    def reports(number: int, *own: float) -> list[dict[str, Any]]:
        times = [{"compute_ms": ms, "data_ms": 0.0, "wait_ms": 2400 - ms, "step_ms": 2400.0, "count": 2} for ms in own]
        return [rank("step", number, 100.0 + 5 * n, step=2 * n, **of) for n, of in enumerate(times)]

    assert first(*reports(0, 80, 80, 80), *reports(1, 80, 80, 80), *reports(2, 80, 2300, 2300)).rank == 2
    assert not inquest.findings(
        run_of(*reports(0, 80, 80, 80), *reports(1, 80, 80, 80), *reports(2, 80, 2300, 80)), 130.0
    )


def test_a_cpu_limit_that_is_lifted_or_slows_all_alike_makes_no_rank_slow() -> None:
    over = [rank("throttled", 1, percent=97.0, cpus=0.1), rank("throttled", 1, percent=0.0, cpus=0.1)]
    everywhere = [rank("throttled", number, percent=60.0, cpus=2.0) for number in range(3)]
    assert not inquest.findings(run_of(*over), 130.0)
    assert not inquest.findings(run_of(*everywhere), 130.0)


def test_even_ranks_are_not_slow_and_a_crowded_link_is() -> None:
    even = [event for number in range(3) for event in paces(number, 20, 180)]
    assert not inquest.findings(run_of(*even), 130.0)
    crowded = [links(1, 0, kind="crowded"), links(1, 0, 2, kind="crowded")]
    assert first(*even, *crowded).node == "n1"
    assert "the link of n1 is slow: " in first(*even, *crowded).message
    assert "the link of n1 to n0 is slow: " in first(*even, crowded[0]).message
    to_one = [links(0, 1, kind="crowded"), links(2, 1, kind="crowded")]
    assert "the link to n1 is slow: " in first(*even, *to_one).message
    assert not inquest.findings(run_of(*even, crowded[0], links(2, 1, kind="crowded")), 130.0), "no node is in all"


def test_the_host_of_a_slow_rank_is_called_busy_only_if_the_others_are_not() -> None:
    def slow(*percents: float) -> str:
        cpus = [{"kind": "telemetry", "t": 100.0, "node": f"n{n}", "cpu_percent": of} for n, of in enumerate(percents)]
        return first(*paces(0, 20, 180), *paces(1, 200, 2), *paces(2, 22, 178), *cpus).message

    assert slow(95.0, 90.0, 20.0).endswith("; the CPUs of n1 are 90 % busy")
    assert "busy" not in slow(20.0, 89.0, 20.0)
    assert "busy" not in slow(95.0, 95.0, 95.0), "all hosts are"


def test_a_few_very_long_steps_make_no_rank_slow() -> None:
    def reports(number: int, own: float, steps: int) -> list[dict[str, Any]]:
        times = {"compute_ms": own, "data_ms": 0.0, "wait_ms": 6000 - own, "step_ms": 6000.0, "count": 1}
        return [rank("step", number, 100.0 + 6 * n, step=n, **times) for n in range(steps)]

    for steps in (3, 4):
        events = [*reports(0, 100, steps), *reports(1, 5900, steps), *reports(2, 100, steps)]
        assert bool(inquest.findings(run_of(*events), 130.0)) == (steps == 4)


def weights(step: int, *digests: str) -> list[dict[str, Any]]:
    return [rank("weights", number, 100.0 + step, step=step, digest=digest) for number, digest in enumerate(digests)]


def test_a_replica_whose_weights_change_is_the_odd_one_once_all_were_alike() -> None:
    finding = first(*weights(1, "a1", "a1", "a1"), *weights(2, "b2", "b2", "c3"))
    assert (finding.cause, finding.rank) == (Cause.CORRUPT_WEIGHTS, 2)
    assert not inquest.findings(run_of(*weights(1, "a1", "a1", "a2"), *weights(2, "b2", "b2", "c3")), 130.0)
    of_all = first(*weights(1, "a1", "a1", "a1"), *weights(2, "b2", "c3", "d4"))
    assert (of_all.cause, of_all.rank) == (Cause.CORRUPT_WEIGHTS, None)
    assert "different weights at step 2; Muster could not tell whose are right" in of_all.message


def test_a_clock_jump_is_reported_and_a_late_report_is_not_a_jump() -> None:
    evidence = run_of()
    for second in range(0, 60, 5):
        jump = 60.0 if second >= 30 else 0.0
        evidence.apply({"kind": "telemetry", "node": "n1", "t": 200.0 + second + jump}, 200.5 + second)
    for second in range(0, 60, 5):
        late = 30.0 if second == 40 else 0.0
        evidence.apply({"kind": "telemetry", "node": "n2", "t": 200.0 + second}, 200.5 + second + late)
    found = inquest.findings(evidence, 300.0)
    assert [(finding.cause, finding.node) for finding in found] == [(Cause.CLOCK, "n1")]
    assert found[0].message == "the clock of n1 jumped by +60 s"


def test_a_jump_of_this_machines_clock_is_not_blamed_on_the_hosts() -> None:
    evidence = run_of()
    for second in range(0, 60, 5):
        jump = 3600.0 if second >= 30 else 0.0
        for node in ("n1", "n2", "n3"):
            evidence.apply({"kind": "telemetry", "node": node, "t": 200.0 + second}, 200.5 + second - jump)
    assert inquest.findings(evidence, 300.0) == []


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", Cause.GPU_MEMORY),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Cause.GPU_LOST),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", Cause.DISK_FULL),
        ("ValueError: bad sample 7", Cause.EXCEPTION),
    ],
)
def test_the_text_of_an_exception_determines_its_cause(error: str, cause: Cause) -> None:
    assert cause_of_error(error) == cause


def test_a_script_whose_ranks_wait_for_an_ended_one_is_over_in_less_than_a_minute() -> None:
    state = State(("n0", "n1", "n2"), script=True)
    up = [{"kind": "node_up", "t": 1.0, "node": name} for name in state.names]
    for event in (*up, *(rank("began", number, 1.0) for number in range(3)), ended(1, 0), stuck(0), stuck(2)):
        state.apply(event)
    state.inquire(101.0)
    assert judge(state, 0.0, 101.0 + ENDED_AFTER_S - 1) is None
    result = judge(state, 0.0, 101.0 + ENDED_AFTER_S)
    assert result is not None
    ended_so = concluded(result, state.case.finding)
    assert (ended_so.verdict, ended_so.node, ended_so.cause) == ("failed", "n1", Cause.LEFT_EARLY)
    state.apply(rank("moves", 0, 120.0))
    assert judge(state, 0.0, 101.0 + ENDED_AFTER_S) is None, "rank 0 has work of its own to finish"


def test_a_run_killed_on_request_is_not_a_crash_of_the_first_node_to_end() -> None:
    killed = Finding(Cause.KILLED, "n1 (rank 1) was killed by SIGKILL", "n1", 1, t=100.0)
    asked = {"verdict": "stopped", "message": AT_ONCE, "at_once": True, "t": 99.0}
    victim = {"verdict": "failed", "t": 99.5}
    result = concluded(from_verdicts([victim, asked]), killed)
    assert (result.verdict, result.message, result.cause, result.node) == ("stopped", AT_ONCE, "", "")
    before = {"verdict": "failed", "message": "m", "t": 98.0}
    assert from_verdicts([asked, before]).verdict == "failed", "it had failed before somebody asked"


def test_a_killed_node_is_the_cause_and_not_a_rank_that_our_stop_ended_later() -> None:
    state = run_of({**node("n1"), "state": "exited", "code": -9})
    result = judge(state, 0.0, 103.0)
    assert result is not None
    state.apply(
        ended(0, -15, 104.0, GONE, how="was ended by the request to stop (SIGTERM)", cause="ended-from-outside")
    )
    state.inquire(105.0)
    whole = concluded(result, state.case.finding)
    assert (whole.node, whole.cause, whole.message) == ("n1", Cause.KILLED, "n1 was killed by SIGKILL")


@pytest.mark.parametrize("script", [True, False])
def test_a_cut_link_is_waited_for_as_long_as_asked_even_if_the_ranks_restart(script: bool) -> None:
    def cut(*events: dict[str, Any], now: float) -> State:
        state = State(("n0", "n1", "n2"), 20.0, script=script)
        up = [{"kind": "node_up", "t": 1.0, "node": name, "address": address} for name, address in ADDRESSES.items()]
        for event in (*up, *(rank("began", number, 1.0) for number in range(3)), links(0, 1), links(1, 0)):
            state.apply(event)
        state.inquire(110.0)
        for event in events:
            state.apply(event)
        state.inquire(now)
        return state

    again = [
        *(ended(number, 1, 115.0, GONE, True) for number in range(3)),
        *(rank("began", n, 120.0) for n in range(3)),
    ]
    assert judge(cut(now=129.0), 0.0, 129.0) is None
    for state in (cut(now=130.0), cut(*again, now=130.0)):
        result = judge(state, 0.0, 130.0)
        assert result is not None, "nobody has mended it"
        assert (result.verdict, concluded(result, state.case.finding).cause) == ("failed", Cause.CUT_OFF)
        assert {"n0", "n1"} < set(result.message.split())
    mended = [links(0), links(1)]
    for well in (cut(*mended, now=130.0), cut(*again, rank("step", 1, 125.0, step=9), now=130.0)):
        assert judge(well, 0.0, 130.0) is None


def test_ranks_that_disagree_on_a_size_are_told_apart_by_their_lines() -> None:
    words = "what(): op.preamble.length <= op.nbytes. 56 vs 8"
    places = [(0, "train.py:42"), (1, "train.py:38")]
    aborted = [ended(number, -6, 100.0, words, True, how="was killed", place=place) for number, place in places]
    unsure = first(*aborted)
    assert (unsure.cause, unsure.rank) == (Cause.MISMATCH, None)
    calls = [["0", 7, "all_reduce", "3", "train.py", 42, "main"]]
    third = rank("ended", 2, 101.0, code=1, error=GONE, victim=True, collectives=calls)
    assert first(*aborted, third, now=101.1).rank == 1  # all ranks have ended, so there is nothing to wait for


def alone(number: int, t: float = 100.0, why: str = "no process group was formed") -> dict[str, Any]:
    return rank("alone", number, t, why=why, hint="Trainer(num_nodes=3)", world=3)


def test_ranks_that_train_alone_are_reported_once_with_what_to_change() -> None:
    state = State(tuple(ADDRESSES), script=True)
    for event in (*(rank("began", number, 1.0) for number in range(3)), *map(alone, range(3))):
        state.apply(event)
    for now in (101.0, 106.0, 107.0, 900.0):
        state.inquire(now)
    (line,) = [line for line in state.story if "alone" in line.text]
    assert line.grave
    assert line.text.startswith("ranks 0-2 train alone so far")
    assert "no process group was formed. Trainer(num_nodes=3)" in line.text
    assert state.case.finding is None, "the run goes on"
    two = first(alone(0), alone(1))
    assert two.message.startswith("ranks 0-1 train alone so far"), (
        "the third may do without a group, or tell of it later"
    )


def test_ranks_that_wait_where_no_other_comes_are_reported_immediately_if_all_do() -> None:
    why = "run.sh:1: torchrun --standalone train.py: it meets at localhost:0"
    waiting = [{**alone(number, 100.0, why), "waits": True} for number in range(3)]
    (finding,) = [each for each in inquest.findings(run_of(*waiting), 100.5) if each.cause == Cause.ALONE]
    assert finding.message.startswith(f"ranks 0-2 wait for others that never come: {why}")
    assert finding.lasting
    # A rank that has reported nothing may still be about to join them.
    assert [each for each in inquest.findings(run_of(*waiting[:2]), 200.0) if each.cause == Cause.ALONE] == []


def test_a_rank_that_joins_under_the_wrong_number_explains_a_hang_at_the_start() -> None:
    waits = {"op": "init_process_group", "doing": "collective"}
    lone = {**alone(1, 100.0, "train.py:7: it joins as rank 0, its LOCAL_RANK"), "waits": True}
    finding = first(lone, *(stuck(number, **waits) for number in range(3)))
    assert finding.message == (
        "no rank has made a step: rank 1 (n1) waits where no other rank joins it: train.py:7: it joins as rank 0, its "
        "LOCAL_RANK. Trainer(num_nodes=3)"
    )
    assert (finding.cause, finding.node, finding.rank) == (Cause.ALONE, "n1", 1)
    # If all of them wait alone, this is reported once.
    all_lone = [{**lone, "rank": number, "node": f"n{number}"} for number in range(3)]
    (only,) = inquest.findings(run_of(*all_lone, *(stuck(number, "lock") for number in range(3))), 130.0)
    assert only.message.startswith("ranks 0-2 wait for others that never come")


def test_a_rank_that_fails_later_still_explains_the_restart() -> None:
    state = State(tuple(ADDRESSES), script=True)
    for event in (*(rank("began", number, 1.0) for number in range(3)), alone(0), alone(1)):
        state.apply(event)
    state.inquire(110.0)
    for event in (ended(1, 1, 120.0, "ValueError: b"), rank("began", 1, 121.0)):
        state.apply(event)
    assert "restart 1): n1 (rank 1) ended with code 1: ValueError: b" in state.story[-1].text


@pytest.mark.parametrize(
    "events",
    [
        [alone(0)],  # this rank may train something for itself while the others wait
        [alone(0), alone(1, 109.0)],  # more ranks may be about to report it
        [alone(0), alone(1), alone(1, 101.0, why="")],
        [alone(0), alone(1), ended(1, 0), ended(0, 0), ended(2, 0)],
        [alone(0), alone(1), rank("began", 0, 102.0)],
    ],
)
def test_too_few_lone_ranks_or_ranks_that_have_joined_since_are_no_finding(events: list[dict[str, Any]]) -> None:
    assert [each for each in inquest.findings(run_of(*events), 110.0) if each.cause == Cause.ALONE] == []


def test_a_node_that_trained_alone_and_left_is_the_cause_not_the_node_that_waited() -> None:
    events = [rank("ended", 0, 101.0, code=0), ended(1, 1, 102.0, "RendezvousClosedError", victim=True)]
    left = inquest.findings(run_of(*events), 130.0)[0]
    words = {"message": "run.sh trained alone: all 2 ranks were on this host", "cause": "trained-alone"}
    verdicts = [
        {"verdict": "failed", "node": "n1", "rank": 1, "since": 101.5, "t": 102.0, "message": "RendezvousClosedError"},
        {"verdict": "failed", "node": "n0", "rank": 0, "since": 0.0, "t": 103.0, **words},
    ]
    result = concluded(from_verdicts(verdicts), left)
    assert (result.message.split("(")[0], result.cause) == (words["message"] + " ", Cause.ALONE)


@pytest.mark.parametrize("words", ["trained alone: x", "was killed by SIGKILL (out of memory: x)", "left early"])
def test_the_text_of_a_verdict_never_sets_its_cause(words: str) -> None:
    """A script may print Muster's own sentences, and Muster's wording may change."""
    result = from_verdicts([{"verdict": "failed", "message": f"train.py {words}", "t": 1.0}])
    assert concluded(result, None).cause == Cause.EXCEPTION
    named = from_verdicts([{"verdict": "failed", "message": "train.py x", "cause": "killed", "t": 1.0}])
    assert concluded(named, None).cause == Cause.KILLED
    for odd in ("", "no-such-cause", "killed "):
        odd_one = from_verdicts([{"verdict": "failed", "message": "train.py x", "cause": odd, "t": 1.0}])
        assert odd_one.cause == Cause.EXCEPTION


def test_unobserved_ranks_raise_no_alarm_however_long_they_are_silent() -> None:
    assert inquest.findings(run_of(), 10_000.0) == []


def test_a_restarted_node_is_reported_with_the_signal_that_ended_it_if_known() -> None:
    for code, words in ((137, "n1 was killed by SIGKILL: restarting it"), (None, "n1 restarts"), (1, "n1 restarts")):
        state = State(("n0", "n1", "n2"))
        state.apply(node("n1"))
        state.apply({**node("n1", t=101.0, restarts=1), "code": code})
        state.apply(rank("began", 1, 102.0))
        assert state.story[-1].text == words


def test_a_disk_that_does_not_answer_is_named_and_ends_the_run_after_the_wait() -> None:
    waits = stuck(1, "disk", disk="/data/x on /data (nfs4 server:/export)")
    found = first(waits)
    assert found.message.startswith("rank 1 (n1) waits for a disk that does not answer")
    assert "/data/x on /data (nfs4 server:/export)" in found.message
    state = State(tuple(ADDRESSES), wait_lost_s=60.0, script=True)
    ups = ({"kind": "node_up", "t": 1.0, "node": name, "address": at} for name, at in ADDRESSES.items())
    for event in (*ups, *map(node, ADDRESSES), *(rank("began", number, 1.0) for number in range(3)), waits):
        state.apply(event, 100.0)
    state.inquire(130.0)
    assert judge(state, 1.0, 131.0) is None, "it may come back"
    result = judge(state, 1.0, 300.0)
    assert result is not None
    assert (result.verdict, result.node, result.cause) == ("failed", "n1", Cause.DISK_SILENT)
    assert "nfs4" in result.message


def test_an_agent_stopped_by_a_signal_is_named_until_it_continues() -> None:
    line = {"kind": "telemetry", "t": 100.0, "node": "n1"}
    found = first({**line, "halted": "its agent is stopped by a signal (SIGSTOP)"})
    assert (found.cause, found.node, found.lasting) == (Cause.STOPPED, "n1", True)
    assert found.message.startswith("n1: its agent is stopped by a signal (SIGSTOP)")
    state = run_of(*({**line, "node": name, "halted": "its agent"} for name in ("n1", "n2")))
    for now in (130.0, 131.0):
        state.inquire(now)
    assert [each.text.partition(":")[0] for each in state.story] == ["n1", "n2"], "each is told of, and once"
    goes_on = {**line, "t": 130.0}
    assert inquest.findings(run_of({**line, "halted": "its agent"}, goes_on), 131.0) == []


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("RuntimeError: Distributed package doesn't have NCCL built in", "muster explain torch-without-cuda; see logs"),
        ("KeyError: 'lr'", "see logs"),
    ],
)
def test_the_hint_at_the_end_names_the_cause_that_explain_would_find(error: str, hint: str) -> None:
    words = {"message": f"n0 (rank 0): train.py ended with code 1: {error}\n    {error}", "cause": "exception"}
    verdict = {"verdict": "failed", "node": "n0", "rank": 0, "t": 1.0, "hint": "see logs", **words}
    assert concluded(from_verdicts([verdict]), None).hint.endswith(hint)
    assert concluded(from_verdicts([{**verdict, "cause": "killed"}]), None).hint == "see logs"


def test_the_hint_is_about_the_first_error_not_about_one_that_followed_from_it() -> None:
    """Earlier, the hint of a run whose rank 1 had a KeyError was about the CUDA error of rank 0 after it."""
    later = "train.py ended with code 1: RuntimeError: CUDA error: device-side assert triggered"
    result = from_verdicts([{"verdict": "failed", "node": "n0", "rank": 0, "t": 1.0, "message": later}])
    culprit = Finding(Cause.EXCEPTION, "n1 (rank 1) ended with code 1: KeyError: 'x'", "n1", 1)
    assert "index is out of range" in concluded(result, None).hint
    assert (concluded(result, culprit).rank, concluded(result, culprit).hint) == (1, "")
