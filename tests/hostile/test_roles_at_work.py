"""Attacks on roles during a run: what a program, another node or a cluster.toml sends does no harm.

A role's program may lie about being ready, and may flood, fork or die; a node of the run may belong to an attacker.
"""

import os
import socket
import threading
import time

import pytest

from deploy.core.errors import UsageError
from deploy.job.cluster import from_file
from deploy.job.roles.role import NO_SIGN, read
from lab.ports import free_port
from muster.errors import Refused
from trainer.node.ending.rank_lives import Life
from trainer.node.membership import meeting, peers
from trainer.node.roles import ready
from trainer.node.roles.plan import BROKE, READY, RUNS, WAITS, Node, Plan, Role
from trainer.node.roles.role_node import RoleNode

KEY = "k" * 32


@pytest.fixture
def part(tmp_path):
    """This node's part of a run with three nodes; the other two are not running."""
    (tmp_path / "logs").mkdir()
    nodes = {name: Node("127.0.0.1", free_port()) for name in ("server", "worker", "main")}
    roles = (
        Role("server", {"server": nodes["server"]}, False, (), ("line", 0, "is up"), 600.0),
        Role("worker", {"worker": nodes["worker"]}, False, ("server",), NO_SIGN, 600.0),
        Role("main", {"main": nodes["main"]}, True, ("worker",), NO_SIGN, 600.0),
    )
    made = RoleNode(Plan(roles, KEY, within=600.0), "server", 0, tmp_path)
    made.log, made.ask_it = tmp_path / "logs/rank-0.log", lambda row: peers.ask(*nodes["server"][:2], KEY, row)
    yield made
    made._closed.set()
    meeting.close(made._listening)


@pytest.fixture
def serve():
    """serve(TEXT) starts a server on loopback that answers each connection with the text; returns its port."""
    servers = []

    def start(text):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def run():
            while True:
                try:
                    with server.accept()[0] as connection:
                        connection.recv(1000)
                        connection.sendall(text)
                except OSError:
                    return

        threading.Thread(target=run, daemon=True).start()
        return server.getsockname()[1]

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def wait_for(what):
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def life(pid=1 << 30, code=None, attempt=0, began=0.0):
    return Life(0, 0, attempt, 1, pid, began, 0.0, code)


# A program that lies about being ready


def test_a_program_that_dies_after_being_ready_is_no_longer_ready(part):
    part.begin()
    part.log.write_text("server is up\n")
    part.look([life(began=time.time() - 1)])
    wait_for(lambda: part.ask_it({"node": "main"})["phase"] == READY)
    part.look([life(code=1)], "ended with code 1")
    assert part.ask_it({"node": "main"})["phase"] == RUNS


def test_restarts_give_a_program_no_more_time_to_become_ready(part):
    part.begin()
    part._since -= 1000  # it has been running since then
    for attempt in range(1, 50):
        late = part.look([life(pid=attempt, attempt=attempt)], "ended with code 1: boom")
    assert late == "server is not ready after 600 s: it was started 50 times, and ended with code 1: boom"


def test_output_of_an_earlier_start_does_not_count_as_ready(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text("is up\n" * 100_000)
    ask = ready.readiness_check("line", "127.0.0.1", 0, "is up", log)
    assert ask(0.0)


@pytest.mark.parametrize("answer", ["301 Moved", "302 Found", "307 Temporary"])
def test_a_redirect_leads_to_no_other_address(serve, tmp_path, monkeypatch, answer):
    asked, connect = [], socket.create_connection
    monkeypatch.setattr(
        socket, "create_connection", lambda address, timeout: asked.append(address) or connect(address, timeout)
    )
    port = serve(f"HTTP/1.1 {answer}\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n\r\n".encode())
    why = ready.readiness_check("url", "127.0.0.1", port, "/", tmp_path / "log")(0.0)
    assert why == f"http://localhost:{port}/ answers {answer[:3]}, not 200"
    assert asked == [("127.0.0.1", port)]


@pytest.mark.parametrize("make", ["link", "link to a folder", "folder", "pipe", "device"])
def test_only_a_plain_file_from_the_role_itself_counts_as_its_ready_file(tmp_path, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "started"
    {
        "link": lambda: path.symlink_to("/etc/passwd"),
        "link to a folder": lambda: path.symlink_to("/"),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),  # a process that opens the pipe waits forever
        "device": lambda: path.symlink_to("/dev/zero"),
    }[make]()
    why = ready.readiness_check("file", "127.0.0.1", 0, "started", tmp_path / "log")(0.0)
    assert why == "started is older than this start, or is not a file"


# A node that lies, or a stranger


@pytest.mark.parametrize(
    "row",
    [
        {"node": ["main"], "phase": BROKE, "over": ""},
        {"node": {"main": 1}, "phase": BROKE, "over": ""},
        {"node": "server", "phase": BROKE, "over": "too early"},  # this node itself
        {"node": "nobody", "phase": BROKE, "over": "too early"},
        {"node": "main", "phase": "x" * 100_000, "over": "too early"},
        {"node": "main", "phase": BROKE, "over": "\x1b[2J"},
        {"node": "main", "phase": BROKE},
        {"phase": BROKE, "over": "too early"},
    ],
)
def test_messages_from_unknown_nodes_and_invalid_messages_end_no_run(part, row):
    part.ask_it(row)
    assert part.ask_it({"node": "main", "phase": WAITS, "over": ""}) == {"node": "server", "phase": WAITS, "over": ""}
    assert set(part._others) == {"worker", "main"}


def test_a_stranger_without_the_key_ends_no_run_and_learns_nothing(part):
    where = part.role.nodes["server"][:2]
    assert peers.ask(*where, "l" * 32, {"node": "main", "phase": BROKE, "over": "too early"}) is None
    assert not part.over


def test_a_second_run_on_the_same_ports_is_refused(part, tmp_path):
    other = Plan(part.plan.roles, "l" * 32)
    with pytest.raises(Refused, match=r"cannot listen on 127\.0\.0\.1:"):
        RoleNode(other, "server", 0, tmp_path)
    assert not part.over


def test_a_server_that_already_uses_the_port_is_not_taken_for_the_roles_own(part, serve):
    part._own = part._own._replace(service=serve(b"HTTP/1.1 200 OK\r\n\r\n"))
    with pytest.raises(Refused, match="is taken: something answers there already"):
        part.begin()


def test_no_free_text_from_a_node_is_kept(part):
    part.ask_it({"node": "main", "phase": RUNS, "over": "", "why": "x" * 500_000, "role": "\x1b[2J"})
    assert "x" * 10 not in repr(part._others)


# A folder that somebody sent

BREAKS = (
    'x"',
    "x'",
    "x\ny",
    "x\r",
    "$(id)",
    "`id`",
    "x;y",
    "x y",
    "\x1b[2J",
    "-oProxyCommand=id",
    "x,y",
    "../x",
    "\x00",
)


@pytest.mark.parametrize("text", BREAKS)
@pytest.mark.parametrize("key", ["name", "address"])
def test_a_host_in_cluster_toml_has_no_name_that_a_variable_or_shell_would_split(tmp_path, key, text):
    given = {"name": "a", key: text}
    quoted = "\n".join(f"{name} = {toml(value)}" for name, value in given.items())
    path = tmp_path / "cluster.toml"
    path.write_text(f"[[hosts]]\n{quoted}\n[[role]]\nname = 'r'\ncommand = 'x'\n")
    with pytest.raises(UsageError):
        from_file(path)


def toml(text):
    return '"' + "".join(rf"\u{ord(letter):04x}" for letter in text) + '"'


@pytest.mark.parametrize("text", [*BREAKS, "a=1", ""])
@pytest.mark.parametrize("key", ["name", "hosts", "after", "ready", "within", "processes"])
def test_a_role_in_cluster_toml_has_no_setting_that_is_split_elsewhere(tmp_path, key, text):
    given = {"name": "r", "command": "x", key: text}
    path = tmp_path / "cluster.toml"
    rows = "\n".join(f"{name} = {toml(value)}" for name, value in given.items())
    path.write_text(f"[[hosts]]\nname = 'a'\n[[role]]\n{rows}\n")
    with pytest.raises(UsageError):
        from_file(path)


@pytest.mark.parametrize("command", ["x\nPET_RANK=1", "x\ry", "\x1b]0;x\x07", "x\x00", " ", "x\u2028y", "x\u202ey"])
def test_a_roles_command_is_one_fully_visible_line(command):
    with pytest.raises(UsageError):
        read(f"a=1:{command}")
