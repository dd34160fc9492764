"""Connections whose other end does not answer are read from the kernel's own tables."""

from __future__ import annotations

import threading

from trainer.node.hang import links

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
# 192.168.64.2:40000 -> 192.168.64.3:29500
ROW = "   0: 0240A8C0:9C40 0340A8C0:733C {st} {tx:08X}:00000000 {tr}:00000064 {retries:08X}  1000  {probes} 4711 1 0\n"


def text(st: str = "01", tx: int = 100, tr: str = "01", retries: int = 0, probes: int = 0) -> str:
    return HEAD + ROW.format(st=st, tx=tx, tr=tr, retries=retries, probes=probes)


def test_a_connection_is_unanswered_once_the_kernel_has_retransmitted_for_seconds() -> None:
    assert links.busy_connections([text(retries=1)]) == []
    (found,) = links.busy_connections([text(retries=5)])
    assert (found.own, found.peer, found.unanswered) == ("192.168.64.2", "192.168.64.3", True)
    assert links.busy_connections([text(st="02", retries=3)])[0].unanswered, "a call that nobody answers"
    assert links.busy_connections([text(tr="04", probes=4)])[0].unanswered, (
        "the host's own firewall drops what it sends"
    )


def test_a_full_queue_is_crowded_and_a_peer_that_does_not_read_is_neither() -> None:
    (found,) = links.busy_connections([text(tx=1 << 20)])
    assert (found.unanswered, found.waiting_bytes) == (False, 1 << 20)
    assert links.busy_connections([text(tx=1 << 20, tr="04", retries=9)]) == [], "it acknowledges, and has no room"


def test_an_ipv6_address_is_read_and_rubbish_is_skipped() -> None:
    six = (
        text(tx=1, retries=9)
        .replace("0340A8C0", "0000000000000000FFFF00000340A8C0")
        .replace("0240A8C0", "000080FE00000000000000000100000A")
    )
    (found,) = links.busy_connections([six, "rubbish", HEAD + "  1: x y z\n"])
    assert (found.own, found.peer) == ("fe80::a00:1", "192.168.64.3")


def test_all_machines_are_called_once_while_a_link_fails() -> None:
    called: list[str] = []

    def answers(address: str) -> bool:
        called.append(address)
        return address == "10.0.0.2"

    calls, ends = links.Calls(answers), {("10.0.0.1", peer) for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.3")}
    assert calls.look(False, lambda: ends) == {}
    for _ in range(2):
        calls.look(True, lambda: ends)
        for thread in threading.enumerate():
            if thread.name == links.CALL:
                thread.join(5.0)
    assert calls.look(True, lambda: ends) == {
        "silent": [["10.0.0.1", "10.0.0.3"]],
        "answering": [["10.0.0.1", "10.0.0.2"]],
    }
    assert sorted(called) == ["10.0.0.2", "10.0.0.3"]
    assert calls.look(False, lambda: ends) == {}


def test_a_machine_that_refuses_a_connection_counts_as_answering() -> None:
    assert links.is_reachable("127.0.0.1")
