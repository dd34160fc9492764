"""Roles on a node: when one starts, is ready, stops and ends a run; what programs and peers may say of themselves."""

import json
import os
import socket
import threading
import time

import pytest

from muster.errors import DONE, FAILED, STOPPED
from trainer.node.hang import links
from trainer.node.roles import ready
from trainer.node.roles.plan import (
    ENDED,
    HELPER_S,
    LOST_S,
    READY,
    RUNS,
    SAVES_S,
    Over,
    Plan,
    Role,
    View,
    read,
    row_of,
    view_of,
)


def role(name, *nodes, **more):
    return Role(name, dict.fromkeys(nodes, ("127.0.0.1", 1, 0)), **more)


PLAN = Plan(
    (role("reward", "r"), role("work", "w0", "w1", after=("reward",)), role("train", "t", after=("work",), ends=True))
)
REWARD, WORK, TRAIN = PLAN.roles


def views(**phases):
    known = {node: View(RUNS, seen=0.0) for each in PLAN.roles for node in each.nodes}
    return {**known, **{node: view if isinstance(view, View) else View(view) for node, view in phases.items()}}


def test_a_role_starts_once_all_that_it_uses_are_ready():
    assert PLAN.waits_for(REWARD, views()) == []
    assert PLAN.waits_for(TRAIN, views(w0=READY)) == ["w1"]
    assert PLAN.waits_for(TRAIN, views(w0=READY, w1=View(ENDED, DONE))) == []
    assert PLAN.waits_for(TRAIN, views(w0=READY, w1=View(ENDED, FAILED))) == ["w1"]


def test_a_run_is_over_with_the_role_that_ends_it():
    assert PLAN.over(views(), 0.0) is None
    assert PLAN.over(views(r=View(ENDED, DONE)), 0.0) is None
    assert PLAN.over(views(t=View(ENDED, DONE)), 0.0) == Over("train", "t")
    stopped = PLAN.over(views(t=View(ENDED, STOPPED, "asked")), 0.0)
    assert stopped == Over("train", "t", STOPPED, "asked")


def test_the_failure_of_another_role_ends_it_too_and_is_no_planned_end():
    assert PLAN.over(views(w1=View(ENDED, FAILED, "no")), 0.0) == Over("work", "w1", FAILED, "no", by_end=False)


def test_a_node_that_has_heard_that_the_run_is_over_passes_it_on_before_anything_else():
    heard = Over("train", "t", STOPPED, "asked")
    failed = View(ENDED, FAILED, "it lost the others", seen=0.0)
    assert PLAN.over(views(r=View(RUNS, over=heard), w1=failed), LOST_S + 1) == heard


def test_without_a_role_that_ends_it_a_run_is_over_when_all_have_ended():
    plan = Plan((role("a", "x"), role("b", "y")))
    assert plan.over({"x": View(ENDED), "y": View(RUNS)}, 0.0) is None
    assert plan.over({"x": View(ENDED), "y": View(ENDED)}, 0.0) == Over()


def test_a_node_that_nobody_reaches_any_more_ends_the_run_but_not_one_that_has_ended():
    late = LOST_S + 1
    seen = {node: View(view.phase, seen=late) for node, view in views().items()}
    assert PLAN.over({**seen, "w0": View(READY, seen=0.0)}, late).node == "w0"
    assert PLAN.over({**seen, "w0": View(ENDED, seen=0.0)}, late) is None
    assert PLAN.over({**seen, "w0": View(READY, seen=late - LOST_S)}, late) is None


def test_the_last_to_start_stops_first_and_nobody_waits_for_ever():
    over = Over("train", "t")
    ended = {"t": View(ENDED)}
    assert PLAN.may_stop(WORK, views(**ended), 0.0, over)
    assert not PLAN.may_stop(REWARD, views(**ended), 0.0, over)
    assert PLAN.may_stop(REWARD, views(**ended), HELPER_S, over)
    assert PLAN.may_stop(TRAIN, views(), 0.0, None)
    assert not PLAN.may_stop(REWARD, views(), HELPER_S, None)
    assert PLAN.may_stop(REWARD, views(), SAVES_S, None)


def test_who_trains_has_time_to_save_where_another_role_has_failed():
    failed = Over("work", "w0", FAILED, by_end=False)
    assert PLAN.grace(TRAIN, failed) == SAVES_S
    assert PLAN.grace(REWARD, failed) == HELPER_S
    assert PLAN.grace(WORK, Over("train", "t")) == HELPER_S


def test_what_a_node_says_of_itself_is_heard_as_it_is_said():
    view = View(ENDED, FAILED, "why", Over("train", "t", FAILED, "no", False))
    assert view_of(json.loads(json.dumps(row_of(view))), 0.0, views()) == view


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"phase": "done", "code": 0},
        {"phase": READY, "code": 77},
        {"phase": READY, "code": "0"},
        {"phase": [READY], "code": 0},
        {"phase": READY, "code": None},
    ],
)
def test_what_is_no_word_of_a_node_is_not_heard(row):
    assert view_of(row, 0.0, views()) is None


def test_words_of_a_node_are_short_and_plain_and_name_nodes_of_the_run():
    long = {"phase": RUNS, "code": 0, "why": "a\x1b[2J\nb" + "x" * 10_000}
    assert view_of(long, 0.0, views()).why.isprintable()
    assert len(view_of(long, 0.0, views()).why) == 300
    stranger = {"phase": RUNS, "code": 0, "over": {"role": "x", "node": "nobody", "code": 0, "why": "", "by_end": True}}
    assert view_of(stranger, 0.0, views()).over is None


def test_a_plan_is_read_as_it_was_made():
    row = {"name": "a", "ends": True, "after": [], "ready": "port", "within": 5, "nodes": {"n": ["127.0.0.1", 1, 2]}}
    plan = read(json.dumps({"key": "k", "roles": [row]}))
    assert plan.roles == (Role("a", {"n": ("127.0.0.1", 1, 2)}, True, (), "port", 5.0),)
    assert "key='k'" not in repr(plan)


@pytest.fixture
def served():
    """A server on loopback that does with a connection as it is told; its port."""
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


def look(text, tmp_path, port=0):
    return ready.look_of(text, "127.0.0.1", port, tmp_path / "rank-0.log", tmp_path)


def test_a_role_that_shows_nothing_is_ready_once_it_runs(tmp_path):
    assert look("", tmp_path)(0.0) == ""


def test_a_port_is_ready_once_it_answers(tmp_path, served):
    port = served(lambda connection: None)
    assert look("port", tmp_path, port)(0.0) == ""
    assert look(f"port {port}", tmp_path)(0.0) == ""
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
        (b"HTTP/1.1 200", ""),
        (b"\xff\xfe" * 100_000, "answers no HTTP"),
        (b"", "answers no HTTP"),
        (b"HTTP/1.1 " + b"2" * 5000 + b"\r\n", "not 200"),
    ],
)
def test_a_url_is_ready_with_200_alone_and_follows_nobody_elsewhere(tmp_path, served, answer, shown):
    def act(connection):
        connection.recv(1000)
        connection.sendall(answer)

    why = look("http://localhost/health", tmp_path, served(act))(0.0)
    assert (shown in why) if shown else (why == "")


def test_a_url_that_answers_a_letter_at_a_time_for_ever_takes_little_time(tmp_path, served):
    def drip(connection):
        for _ in range(100):
            connection.sendall(b"H")
            time.sleep(0.1)

    began = time.monotonic()
    assert look("http://localhost/", tmp_path, served(drip))(0.0)
    assert time.monotonic() - began < 5


def test_a_file_of_an_earlier_life_and_a_link_show_nothing(tmp_path):
    now, ask = time.time(), look("file out/ready", tmp_path)
    assert "no file" in ask(now)
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "ready"
    path.touch()
    os.utime(path, (now - 10, now - 10))
    assert "before it started" in ask(now)
    os.utime(path, (now + 1, now + 1))
    assert ask(now) == ""
    path.unlink()
    path.symlink_to("/etc/hosts")
    assert "not a file" in ask(0.0)


def test_a_line_counts_once_it_is_printed_in_this_life_also_in_pieces(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text("listens\n")  # of an earlier start
    ask = look("line listens", tmp_path)
    assert "has not printed" in ask(0.0)
    with log.open("a") as file:
        file.write("it list")
        file.flush()
        assert "has not printed" in ask(0.0)
        file.write("ens now\n")
        file.flush()
    assert ask(0.0) == ""
    assert "has not printed" in ask(time.time() + 1)  # another life


def test_endless_output_is_read_in_pieces(tmp_path):
    ask = look("line listens", tmp_path)
    (tmp_path / "rank-0.log").write_bytes(b"x" * (9 << 20) + b"listens")
    assert [bool(ask(0.0)) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("wanted", "listens", "shown"),
    [
        ("port", [("0.0.0.0", 8000)], ""),
        ("port", [("127.0.0.1", 8000)], ""),
        ("port", [("0.0.0.0", 8080)], "; its program listens on 0.0.0.0:8080"),
        ("http://localhost/health", [("10.9.0.9", 8000), ("::", 9)], "; its program listens on 10.9.0.9:8000, [::]:9"),
        ("port", [], "; its program listens on no port"),
        ("line up", [("0.0.0.0", 8080)], ""),
    ],
)
def test_a_program_that_listens_elsewhere_is_told_where(wanted, listens, shown):
    assert ready.elsewhere(wanted, "10.0.0.1", 8000, listens) == shown


def test_where_this_session_listens_is_seen():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname() in links.listening(os.getsid(0))
