"""Nodes meet in rounds: in the planned order, again whenever one begins again, and never with one that has gone."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.torch

from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousTimeoutError  # noqa: E402
from torch.distributed.launcher.api import LaunchConfig  # noqa: E402

from lab.ports import free_port  # noqa: E402
from lab.waiting import until  # noqa: E402
from trainer.node.launch import rounds  # noqa: E402

LABELS = ("127.0.0.1", "node-00001", "node-00002")


def node(port, place, nodes=3, ranks=1, join_s=60):
    """The node at this place, on the run's meeting address."""
    conf = {"is_host": str(int(place == 0)), "join_timeout": str(join_s)}
    where = {"rdzv_backend": "c10d", "rdzv_endpoint": f"127.0.0.1:{port}", "rdzv_configs": conf, "run_id": "r"}
    config = LaunchConfig(nodes, nodes, ranks, local_addr=LABELS[place], **where)
    return rounds.Rounds(config, None, None)


@pytest.fixture
def meet():
    """Has nodes enter a round, each in a thread of its own: their Futures."""
    with ThreadPoolExecutor() as pool:
        yield lambda *nodes: [pool.submit(each.next) for each in nodes]


@pytest.fixture
def three():
    """Three nodes: with 1, 4 and 2 ranks."""
    port = free_port()
    made = [node(port, place, ranks=ranks) for place, ranks in enumerate((1, 4, 2))]
    made.append(port)
    return made


def parts(futures):
    return [(part.place, part.first_rank, part.world, part.nodes) for part in (each.result(30) for each in futures)]


def test_the_nodes_have_their_planned_places_whoever_comes_first(meet, three):
    first, second, third, _ = three
    assert parts(meet(third, second, first)) == [(2, 5, 7, 3), (1, 1, 7, 3), (0, 0, 7, 3)]


def test_who_begins_again_has_the_others_follow_into_a_round_with_a_store_of_its_own(meet, three):
    *nodes, _ = three
    before = {each.result(30).port for each in meet(*nodes)}
    assert not any(each.waiting() for each in nodes)
    again = meet(nodes[2])
    until(lambda: nodes[0].waiting() and nodes[1].waiting(), "word of it")
    after = {each.result(30).port for each in meet(*nodes[:2]) + again}
    assert (len(before), len(after), before & after) == (1, 1, set())


def test_a_process_takes_the_place_of_one_that_was_killed_and_the_others_follow(meet, three):
    first, second, third, port = three
    parts(meet(first, second, third))
    came_back = node(port, 1, ranks=4)
    again = meet(came_back)
    until(lambda: first.waiting() and third.waiting(), "word of it")
    assert parts(again + meet(first, third)) == [(1, 1, 7, 3), (0, 0, 7, 3), (2, 5, 7, 3)]


def test_who_has_come_and_gone_is_waited_for_in_the_next_round(meet, three, monkeypatch):
    monkeypatch.setattr(rounds, "_STAY_S", 0.3)
    first, second, third, port = three
    gone = node(port, 1, join_s=0.1)
    with pytest.raises(RendezvousTimeoutError, match="1 of 3 nodes have come"):
        gone.next()
    waits = meet(first, third)
    until(lambda: first._now()[0] > 1, "a round without the one that has gone")
    assert parts([*waits, *meet(second)]) == [(0, 0, 7, 3), (2, 5, 7, 3), (1, 1, 7, 3)]


def test_a_node_that_has_ended_for_good_is_waited_for_by_nobody(meet, three):
    *nodes, _ = three
    parts(meet(*nodes))
    nodes[2].close()
    assert nodes[0].is_closed()
    for future in meet(*nodes[:2]):
        with pytest.raises(RendezvousClosedError):
            future.result(30)


def test_a_generation_is_over_once_the_ranks_of_all_nodes_have_ended(meet, three):
    first, second, third = [each.result(30) for each in meet(*three[:3])]
    assert not first.is_over()
    assert not second.is_over()
    assert third.is_over(), "the last one knows"
    assert second.is_over()
    assert first.is_over(), "the first has the store, and goes last"
