"""Roles on a node: when one starts, is ready, stops and ends a run; and what programs and peers may report."""

import json
import os
import socket
import threading
import time

import pytest

from lab import waiting
from lab.ports import free_port
from muster.errors import DONE, FAILED
from trainer.node.hang import links
from trainer.node.roles import ready
from trainer.node.roles.plan import (
    AS_PLANNED,
    BROKE,
    ENDED,
    HELPER_S,
    LOST_S,
    READY,
    RUNS,
    SAVES_S,
    TOO_EARLY,
    Node,
    Plan,
    Role,
    View,
    read,
    view_of,
)
from trainer.node.roles.role_node import RoleNode


def role(name, *nodes, at=None, ends=False, after=()):
    return Role(name, at or dict.fromkeys(nodes, Node("127.0.0.1", 1)), ends, after, ("", 0, ""), 600.0)


PLAN = Plan(
    (role("reward", "r"), role("work", "w0", "w1", after=("reward",)), role("train", "t", after=("work",), ends=True))
)
REWARD, WORK, TRAIN = PLAN.roles


def views(**phases):
    known = {node: View(RUNS) for each in PLAN.roles for node in each.nodes}
    return {**known, **{node: view if isinstance(view, View) else View(view) for node, view in phases.items()}}


def test_the_restart_arguments_are_for_the_role_that_ends_the_run_or_the_first():
    has = {node: "MUSTER_RESTART_WITH" not in PLAN.variables(node) for node in ("r", "w0", "w1", "t")}
    assert has == {"r": False, "w0": False, "w1": False, "t": True}
    none_ends = Plan((role("a", "a0"), role("b", "b0")))
    assert ["MUSTER_RESTART_WITH" in none_ends.variables(node) for node in ("a0", "b0")] == [False, True]


def test_a_role_starts_once_all_that_it_uses_are_ready():
    assert PLAN.waits_for(REWARD, views()) == []
    assert PLAN.waits_for(TRAIN, views(w0=READY)) == ["w1"]
    assert PLAN.waits_for(TRAIN, views(w0=READY, w1=ENDED)) == []
    assert PLAN.waits_for(TRAIN, views(w0=READY, w1=BROKE)) == ["w1"]


def test_a_run_is_over_with_the_role_that_ends_it():
    assert PLAN.over(views(), 0.0) == ""
    assert PLAN.over(views(r=ENDED), 0.0) == ""
    assert PLAN.over(views(t=ENDED), 0.0) == AS_PLANNED
    assert PLAN.over(views(t=BROKE), 0.0) == AS_PLANNED


def test_a_role_that_fails_as_the_run_ends_changes_nothing():
    assert PLAN.over(views(t=ENDED, w0=BROKE), 0.0) == AS_PLANNED
    assert PLAN.over(views(t=BROKE, w0=BROKE), 0.0) == AS_PLANNED


def test_the_failure_of_another_role_ends_the_run_too_and_is_no_planned_end():
    assert PLAN.over(views(w1=BROKE), 0.0) == TOO_EARLY


def test_without_a_role_that_ends_it_a_run_is_over_when_all_have_ended():
    plan = Plan((role("a", "x"), role("b", "y")))
    assert plan.over({"x": View(ENDED), "y": View(RUNS)}, 0.0) == ""
    assert plan.over({"x": View(ENDED), "y": View(ENDED)}, 0.0) == AS_PLANNED
    assert plan.over({"x": View(ENDED), "y": View(BROKE)}, 0.0) == TOO_EARLY


def test_one_nodes_report_of_the_end_counts_for_all_before_anything_else():
    assert PLAN.over(views(r=View(RUNS, TOO_EARLY)), 0.0) == TOO_EARLY
    assert PLAN.over(views(r=View(RUNS, AS_PLANNED), w1=View(BROKE)), LOST_S + 1) == AS_PLANNED


def test_a_node_that_nobody_reaches_any_more_ends_the_run_but_not_one_that_has_ended():
    late = LOST_S + 1
    seen = {node: View(view.phase, seen=late) for node, view in views().items()}
    assert PLAN.over({**seen, "w0": View(READY, seen=0.0)}, late) == TOO_EARLY
    assert PLAN.over({**seen, "w0": View(ENDED, seen=0.0)}, late) == ""
    assert PLAN.over({**seen, "w0": View(READY, seen=late - LOST_S)}, late) == ""


def test_the_last_to_start_stops_first_and_nobody_waits_forever():
    ended = {"t": ENDED}
    assert PLAN.may_stop(WORK, views(**ended), 0.0, AS_PLANNED)
    assert not PLAN.may_stop(REWARD, views(**ended), 0.0, AS_PLANNED)
    assert PLAN.may_stop(REWARD, views(**ended), HELPER_S, AS_PLANNED)
    assert PLAN.may_stop(TRAIN, views(), 0.0, "")
    assert not PLAN.may_stop(REWARD, views(), HELPER_S, "")
    assert PLAN.may_stop(REWARD, views(), SAVES_S, "")


def test_a_training_role_has_time_to_save_if_another_role_has_failed():
    assert TRAIN.grace == SAVES_S
    assert (REWARD.grace, WORK.grace) == (HELPER_S, HELPER_S)


def test_the_role_that_stops_next_learns_immediately_that_the_last_one_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # three nodes in one process
    (tmp_path / "logs").mkdir()
    roles = tuple(role(name, at={name: Node("127.0.0.1", free_port())}, ends=name == "c") for name in "abc")
    plan = Plan(roles, "k" * 32)
    parts = first, second, last = [RoleNode(plan, name, rank, tmp_path) for rank, name in enumerate("abc")]
    broken = threading.Thread(target=first.settle, args=(None, FAILED, False), daemon=True)
    broken.start()
    heard = [part._others for part in parts]
    waiting.until(
        lambda: all(view.over for others in heard for view in others.values()), "all to know that all know", 10
    )
    assert not second.may_stop()
    last.settle(None, DONE, released=True)
    waiting.until(second.may_stop, "its turn", 2)
    second.settle(None, DONE, released=True)
    broken.join(10)
    assert not broken.is_alive()


def test_a_nodes_report_is_read_as_it_was_sent():
    assert view_of({"node": "w0", "phase": BROKE, "over": TOO_EARLY}, View(), 7.0) == View(BROKE, TOO_EARLY, 7.0)


def test_an_end_is_final_whatever_report_arrives_after_it():
    ended = View(ENDED, AS_PLANNED, 7.0)
    assert view_of({"phase": RUNS, "over": ""}, ended, 8.0) == View(ENDED, AS_PLANNED, 8.0)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"phase": "done", "over": ""},
        {"phase": READY, "over": "x"},
        {"phase": READY, "over": 0},
        {"phase": [READY], "over": ""},
        {"phase": READY, "over": None},
        {"phase": "a\x1b[2J" * 10_000, "over": ""},
    ],
)
def test_an_invalid_report_of_a_node_is_ignored(row):
    before = View(READY, "", 7.0)
    assert view_of(row, before, 8.0) is before


def test_a_plan_is_read_as_it_was_made():
    row = {"name": "a", "ends": True, "after": ["b"], "ready": ["port", 0, ""], "within": 5.0}
    plan = read(json.dumps({"key": "k", "roles": [{**row, "nodes": {"n": ["127.0.0.1", 1, 2, 3, 4]}}]}))
    assert plan.roles == (Role("a", {"n": Node("127.0.0.1", 1, 2, 3, 4)}, True, ["b"], ["port", 0, ""], 5.0),)
    assert "key='k'" not in repr(plan)


def test_every_program_knows_where_the_others_are_and_which_one_it_is():
    here = {"w0": Node("10.0.0.1", 1, 8100, 3, 2), "w1": Node("fd00::2", 1, 8101, 4, 2)}
    plan = Plan((role("roll-out", at=here), role("t", at={"t": Node("10.0.0.3", 1)})))
    assert plan.variables("w1") == {
        "MUSTER_ROLL_OUT_HOSTS": "10.0.0.1,fd00::2",
        "MUSTER_ROLL_OUT_PORT": "8100",
        "MUSTER_ROLL_OUT_ADDRESSES": "10.0.0.1:8100,[fd00::2]:8101",
        "MUSTER_T_HOSTS": "10.0.0.3",
        "MUSTER_ROLE": "roll-out",
        "MUSTER_ROLE_INDEX": "1",
        "MUSTER_ROLE_HOST": "fd00::2",
        "MUSTER_ROLE_PORT": "8101",
        "MUSTER_ROLE_GPUS": "2",
        "MUSTER_FIRST_RANK": "4",
    }
    assert "MUSTER_ROLE_PORT" not in plan.variables("t")


@pytest.fixture
def served():
    """Return a function that starts a server on loopback, which runs `act` on each connection, and returns its port."""
    listening, stop = [], threading.Event()

    def serve(act):
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(0.1)
        listening.append(server)

        def run():
            while not stop.is_set():
                try:
                    with server.accept()[0] as connection:
                        act(connection)
                except OSError:
                    continue

        threading.Thread(target=run, daemon=True).start()
        return server.getsockname()[1]

    yield serve
    stop.set()
    for server in listening:
        server.close()


def look(kind, tmp_path, port=0, about=""):
    return ready.readiness_check(kind, "127.0.0.1", port, about, tmp_path / "rank-0.log")


def test_a_role_without_a_readiness_check_is_ready_once_it_runs(tmp_path):
    assert look("", tmp_path)(0.0) == ""


def test_a_port_is_ready_once_it_answers(tmp_path, served):
    port = served(lambda connection: None)
    assert look("port", tmp_path, port)(0.0) == ""
    free = socket.create_server(("127.0.0.1", 0))
    number = free.getsockname()[1]
    free.close()
    assert look("port", tmp_path, number)(0.0) == f"nothing answers on port {number} (connection refused)"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 503 loading\r\n\r\n", "answers 503"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://example.org/\r\n\r\n", "answers 301"),
        (b"200 OK\r\n", "answers no HTTP"),
        (b"HTTP/1.1 200", "answers no HTTP"),
        (b"\xff\xfe" * 100_000, "answers no HTTP"),
        (b"", "answers no HTTP"),
        (b"HTTP/1.1 " + b"2" * 5000 + b"\r\n", "not 200"),
    ],
)
def test_a_url_is_ready_only_with_200_and_redirects_are_not_followed(tmp_path, served, answer, shown):
    def act(connection):
        connection.recv(1000)
        connection.sendall(answer)

    why = look("url", tmp_path, served(act), "/health")(0.0)
    assert (shown in why) if shown else (why == "")


def test_a_url_that_answers_one_byte_at_a_time_is_soon_given_up(tmp_path, served):
    def drip(connection):
        for _ in range(100):
            connection.sendall(b"H")
            time.sleep(0.1)

    began = time.monotonic()
    assert look("url", tmp_path, served(drip), "/")(0.0)
    assert time.monotonic() - began < 5


def test_a_file_of_an_earlier_life_or_a_link_makes_no_role_ready(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now, ask = time.time(), look("file", tmp_path, about="out/ready")
    assert "no file" in ask(now)
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "ready"
    path.touch()
    os.utime(path, (now - 10, now - 10))
    assert "older than this start" in ask(now)
    os.utime(path, (now + 1, now + 1))
    assert ask(now) == ""
    path.unlink()
    path.symlink_to("/etc/hosts")
    assert "not a file" in ask(0.0)


def test_a_line_counts_once_it_is_printed_in_this_life_even_in_pieces(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text("listens\n")  # the line is from an earlier start
    ask = look("line", tmp_path, about="listens")
    assert "has not printed" in ask(0.0)
    with log.open("a") as file:
        file.write("it list")
        file.flush()
        assert "has not printed" in ask(0.0)
        file.write("ens now\n")
        file.flush()
    assert ask(0.0) == ""
    assert "has not printed" in ask(time.time() + 1)  # the program's next life


def test_a_line_counts_even_if_the_clock_is_set_back_before_its_programs_start(tmp_path):
    ask = look("line", tmp_path, about="listens")
    (tmp_path / "rank-0.log").write_text("listens\n")
    assert [ask(time.time() + 3600) for _ in range(2)] == ["", "it has not printed 'listens'"], "two lives"
    later = time.time() + 3600
    (tmp_path / "rank-0.log").write_text("listens\nlistens\n")
    assert [ask(later), ask(later)] == ["", ""]


def test_endless_output_is_read_in_pieces(tmp_path):
    ask = look("line", tmp_path, about="listens")
    (tmp_path / "rank-0.log").write_bytes(b"x" * (9 << 20) + b"listens")
    assert [bool(ask(0.0)) for _ in range(3)] == [True, True, False]


def test_a_program_that_is_not_ready_is_reported_with_where_it_listens():
    assert ready.listening_words([("10.9.0.9", 8000), ("::", 9)]) == "; its program listens on 10.9.0.9:8000, [::]:9"
    assert ready.listening_words([]) == "; its program listens on no port"


def test_the_addresses_where_this_session_listens_are_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname() in links.listening(os.getsid(0))
