"""A large folder goes to a host from a process of its own, which logs in by the same settings."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from deploy.core.errors import DeployError
from deploy.image import path_entry, selection, sending
from deploy.image.folder_stream import FolderStream
from deploy.ssh import session
from lab.waiting import until


@pytest.fixture
def stream(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / os.fsdecode(b"odd \xff\n'\" name")).write_text("x")
    (folder / ("n" * 120)).write_bytes(os.urandom(3 << 20))
    (folder / "link").symlink_to("n")
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o755)
    entries = [path_entry.read(folder, path) for path in selection.select(folder).paths]
    return FolderStream(folder, entries, ["gone", os.fsdecode(b"\xff")])


@pytest.fixture
def opened(server):
    host = server().host
    with session.open_all([host]) as sessions:
        yield sessions.all()[host.name]


def senders() -> list[psutil.Process]:
    """The processes that send for this one."""
    children = psutil.Process().children()
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "deploy.image.sending" in child.cmdline()]


def test_another_process_sends_the_same_bytes_and_hands_back_how_the_command_ended(opened, stream, tmp_path):
    seen, goal = [], tmp_path / "came"
    done = sending.apart(opened, ["sh", "-c", f"cat >{goal}; echo out; echo err >&2; exit 7"], stream, seen.append)
    assert goal.read_bytes() == b"".join(stream.read(lambda sent: None))
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")
    assert seen[-1] == stream.size == goal.stat().st_size
    assert not senders()


def test_a_host_that_lets_no_second_login_in_gets_the_folder_over_the_open_connection(opened, stream, client, tmp_path):
    client.known_hosts.write_text("")  # as a host whose key needs a touch for each login
    done = sending.apart(opened, ["sh", "-c", f"cat >{tmp_path}/came"], stream, lambda sent: None)
    assert done.code == 0
    assert (tmp_path / "came").stat().st_size == stream.size


def test_a_sender_that_is_killed_or_loses_its_listener_ends_with_the_reason(opened, stream, tmp_path):
    wait = ["sh", "-c", f"echo $$ >{tmp_path}/began; sleep 60"]

    def begun(act):
        """Calls `act` once, when the command runs on the host."""
        todo = [act]

        def tell(sent):
            until((tmp_path / "began").exists, "the command", 10)
            while todo:
                todo.pop()()

        return tell

    with pytest.raises(DeployError, match="was killed"):
        sending.apart(opened, wait, stream, begun(lambda: senders()[0].send_signal(signal.SIGKILL)))
    with pytest.raises(DeployError, match="connection was lost"):
        sending.apart(opened, wait, stream, begun(opened.close))
    until(lambda: not senders(), "the end of the sender", 10)


def test_a_file_that_changes_meanwhile_is_named_by_the_sender(opened, stream, tmp_path):
    (tmp_path / "code" / "run.sh").write_text("false")
    with pytest.raises(DeployError, match=r"run\.sh has changed while it was sent"):
        sending.apart(opened, ["sh", "-c", "cat >/dev/null"], stream, lambda sent: None)
