"""Runs that wait for the same hosts each get a turn, no two have a host together, and none blocks others forever.

The nodes are the trainer's own, and ask each other over loopback; a host is a folder of claims. Only the steps of
the rehearsal are left out.
"""

import json
import os
import random
import sys
import threading
import time

import pytest

from lab import ports, waiting
from trainer.node.membership import peers
from trainer.node.queue import coordinator, reservation
from trainer.node.queue.claims import HOLDS, RUNS, WAITS, Claims
from trainer.node.queue.coordinator import Coordinator, Unfit
from trainer.node.queue.reservation import Reservation

# These tests start programs.
pytestmark = pytest.mark.long


class Run:
    """A run with a node on each of these hosts (folders), which it takes in the order of their names, or in `order`."""

    def __init__(self, number, hosts, order=None):
        self.number, port = number, ports.free_port()
        # Each host has its own address, made from its folder's name.
        addresses = [f"127.0.{number}.{host.name}" for host in hosts]
        self.said, self.places, self.sockets = [], [], []
        same = {"names": [host.name for host in hosts], "addresses": addresses, "port": port, "key": f"key{number}"}
        same |= {"order": order or sorted(range(len(hosts)), key=lambda spot: hosts[spot].name)}
        about = {"number": number, "token": f"{number:x}", "run": f"r{number}", "user": "u", "control": "c", "gpus": []}
        about |= {"waits": False, "whole": True, "state": "rests", "returns": True}
        for spot, host in enumerate(hosts):
            own = host / f"run-{number}-{number:x}"
            for made in (own, host / f"{own.name}.lock"):
                made.touch()
            node = Reservation({**same, "place": spot, "asked": 0, "gpus": {}}, Claims(json.dumps(about), own, host))
            node._on_prove, node._on_proved = lambda _: None, lambda _: {"over": True, "error": ""}
            self.places.append(node)
            self.sockets.append(peers.serve(addresses[spot], port, same["key"], node.answer))
        self.turn = Coordinator(self.places[0], ports.free_port(), self.said.append)

    @property
    def states(self):
        return [node.claims.own.state for node in self.places]

    def end(self):
        for node, socket in zip(self.places, self.sockets, strict=True):
            node.claims.leave()
            close(socket)


def close(socket):
    try:
        socket.shutdown(2)
    finally:
        socket.close()


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "_PROVED_EVERY_S", 0.02)
    made = [tmp_path / str(number) for number in (1, 2, 3)]
    for host in made:
        host.mkdir()
    return made


def test_a_run_takes_its_hosts_in_order_and_keeps_what_it_has(hosts):
    first = Run(1, hosts[1:2])
    assert first.turn.step()
    second = Run(2, [hosts[2], hosts[1], hosts[0]])
    assert not second.turn.step()
    assert second.states == ["rests", WAITS, HOLDS], "the hosts are taken as their names go"
    assert second.said == ["2: run r1 (u) is there"]
    first.end()
    assert second.turn.step()
    assert second.states == [RUNS] * 3
    second.end()


def test_runs_that_take_hosts_in_opposite_orders_all_start_and_never_share_one(hosts):
    draw, there, fault = random.Random(7), {host.name: 0 for host in hosts}, []
    lock, done = threading.Lock(), []

    def live(run, own):
        while not run.turn.step():
            time.sleep(draw.uniform(0.01, 0.05))
        with lock:
            for host in own:
                there[host.name] += 1
                fault.extend([host.name] if there[host.name] > 1 else [])
        time.sleep(draw.uniform(0.0, 0.05))
        with lock:
            for host in own:
                there[host.name] -= 1
        run.end()
        done.append(run.number)

    threads = []
    for number in range(1, 9):
        own = draw.sample(hosts, draw.choice((1, 2, 2, 3)))
        order = draw.sample(range(len(own)), len(own))  # worse than with real hosts: each run has its own order
        threads.append(threading.Thread(target=live, args=(Run(number, own, order), own), daemon=True))
    for thread in draw.sample(threads, len(threads)):
        thread.start()
    end = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert sorted(done) == list(range(1, 9)), f"these wait for each other: {set(range(1, 9)) - set(done)}"
    assert not fault


def test_a_lost_host_blocks_no_other_host_and_its_run_continues_once_it_is_back(hosts, monkeypatch):
    monkeypatch.setattr(coordinator, "LEASE_S", 3600.0)
    wide = Run(1, hosts[:2])
    close(wide.sockets[1])
    narrow = Run(2, hosts[:1])
    assert not wide.turn.step()
    assert wide.states[0] == HOLDS, "a short silence is no loss"
    assert not narrow.turn.step()
    monkeypatch.setattr(coordinator, "LEASE_S", 0.0)
    assert not wide.turn.step()
    assert wide.states[0] == "rests"
    assert narrow.turn.step()
    narrow.end()
    wide.sockets[1] = peers.serve("127.0.1.2", wide.places[1].plan["port"], "key1", wide.places[1].answer)
    assert wide.turn.step() or wide.turn.step()
    wide.end()


def test_a_node_that_nobody_asks_gives_its_place_back(hosts, monkeypatch):
    run = Run(1, hosts[:2])
    run.turn._take()
    assert run.states == [HOLDS, HOLDS]
    monkeypatch.setattr(reservation, "LEASE_S", 0.0)
    run.places[1].look()
    assert run.states == [HOLDS, "rests"]
    run.end()


def test_a_node_that_another_does_not_reach_is_named(hosts):
    run = Run(1, hosts[:2])
    run.places[1]._on_open = lambda _: {"port": ports.free_port()}
    with pytest.raises(Unfit, match=r"1 cannot reach 2 \(127.0.1.2:\d+\): Connection refused"):
        run.turn.step()
    assert run.states == [HOLDS, HOLDS]
    run.end()


def test_failed_first_steps_are_named_as_the_cause(hosts):
    run = Run(1, hosts[:2])
    run.places[1]._on_proved = lambda _: {"over": True, "error": "CUDA error: busy"}
    run.places[0]._on_proved = lambda _: {"over": True, "error": ""}
    with pytest.raises(Unfit, match="its first steps: CUDA error: busy") as fault:
        run.turn.step()
    assert fault.value.node == run.turn._names[1]
    run.end()


@pytest.mark.parametrize(("code", "error"), [(0, ""), (1, "local rank 0: meet: no peer")])
def test_the_first_steps_of_a_node_with_many_gpus_end_however_much_they_print(
    hosts, tmp_path, monkeypatch, code, error
):
    rank = {"local": 0, "step": "meet", "error": "no peer", "nccl": ["Channel 00/0 : 0[0] -> 1[1] via P2P"] * 9000}
    (tmp_path / "words").write_text(json.dumps({"ranks": [rank]}) + "\n")
    (tmp_path / "python").write_text(f"#!/bin/sh\ncat {tmp_path}/words\nexit {code}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    run = Run(1, hosts[:1])
    node = run.places[0]
    Reservation._on_prove(node, {"port": 1})
    waiting.until(lambda: (Reservation._on_proved(node, {}))["over"], "the rehearsal to end")
    assert Reservation._on_proved(node, {})["error"] == error
    run.end()


def test_a_node_whose_answer_to_the_start_was_lost_is_asked_again_until_it_answers(hosts, monkeypatch):
    run, lost, asked = Run(1, hosts[:2]), [None, None], []
    ask, pauses = run.turn._ask, []

    def lossy(place, question):
        answer = ask(place, question)
        if place == 1 and question["do"] == "go":
            asked.append(question)
            return lost.pop() if lost else answer
        return answer

    monkeypatch.setattr(run.turn, "_ask", lossy)
    monkeypatch.setattr(coordinator.time, "sleep", pauses.append)
    assert run.turn.step()
    assert (len(asked), pauses.count(1.0)) == (3, 2)
    assert asked[0] == asked[2]
    run.end()


def test_a_run_that_loses_a_host_to_an_older_run_before_the_start_starts_nothing(hosts):
    run = Run(2, hosts[:2])
    run.places[1]._on_proved = lambda _: (run.places[1]._on_rest({"why": "wounded"}), {"over": True, "error": ""})[1]
    assert not run.turn.step()
    assert RUNS not in run.states
    assert not any(node.started for node in run.places)
    run.end()


def test_a_stopped_node_blocks_nobody_and_does_not_start_on_a_host_that_others_took(hosts):
    stopped, other = Run(1, hosts[:1]), Run(2, hosts[:1])
    stopped.turn._take()
    assert not other.turn.step()
    os.utime(stopped.places[0].claims._own, (1, 1))
    assert other.turn.step()
    assert stopped.places[0].answer({"do": "commit"})["ready"] is False
    assert stopped.states == ["rests"]
    stopped.end()
    other.end()


def test_a_stranger_without_the_key_learns_and_changes_nothing(hosts):
    run = Run(1, hosts[:1])
    plan = run.places[0].plan
    verdict = {"verdict": "stopped", "code": 75, "rank": 0, "node": "x", "step": 0}
    assert peers.ask(plan["addresses"][0], plan["port"], "guess", {"do": "end", "verdict": verdict}) is None
    assert run.places[0].ended is None
    assert peers.ask(plan["addresses"][0], plan["port"], plan["key"], {"do": "nonsense"}) == {"state": "rests"}
    run.end()
