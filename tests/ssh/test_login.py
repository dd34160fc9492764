"""A host that wants a second factor: the user's own ssh logs in once, and every command uses its connection.

A real sshd asks for a code by PAM, keyboard-interactive, after the key. An askpass program answers, and counts.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import socket
import subprocess
import threading
import urllib.request
import uuid
from pathlib import Path

import psutil
import pytest

from deploy.core.errors import DeployError
from deploy.door import login
from deploy.door import session as ssh
from deploy.door.faults import SshFault
from deploy.hosts.look import port
from lab.waiting import until
from tests.ssh import conftest

PAM = Path("/etc/pam.d")
FACTORS = (
    "AuthenticationMethods publickey,keyboard-interactive",
    "KbdInteractiveAuthentication yes",
    "UsePAM yes",
    "AllowTcpForwarding yes",
)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Returns how often a code was asked for; ssh runs this askpass program, which knows the answer `123456`."""
    count, program = tmp_path / "asked", tmp_path / "askpass"
    program.write_text(f"#!/bin/sh\necho . >>{count}\necho 123456\n")
    program.chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    return lambda: len(count.read_text().split()) if count.exists() else 0


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A short home for the sockets, because a socket's path must be short."""
    short = Path("/tmp") / f"m-{uuid.uuid4().hex[:6]}"
    short.mkdir(mode=0o700)
    monkeypatch.setattr("deploy.door.settings.home", lambda: short)
    yield short
    shutil.rmtree(short)


@pytest.fixture
def guarded(server, client, home, tmp_path, monkeypatch):
    """A server that accepts the client's key and then asks for a code; its connection is closed afterwards."""
    if os.getuid() != 0:
        pytest.skip("it takes root to give an sshd a PAM service of its own")
    name = f"muster-{uuid.uuid4().hex[:8]}"
    check = tmp_path / "check"
    check.write_text('#!/bin/sh\nread -r code\n[ "${code%%[!0-9]*}" = 123456 ]\n')
    check.chmod(0o755)
    (PAM / name).write_text(
        f"auth required pam_exec.so quiet expose_authtok {check}\n"
        + "".join(f"{kind} required pam_permit.so\n" for kind in ("auth", "account", "session"))
    )
    # sshd's PAM service has the name of its program.
    program = tmp_path / name
    shutil.copy(conftest.SSHD, program)
    monkeypatch.setattr(conftest, "SSHD", str(program))
    try:
        made = server(*FACTORS)
        yield made
        login.logout([made.host])
    finally:
        (PAM / name).unlink()


def opened(host):
    return ssh.open_all([host])


def fault_of(host):
    with opened(host) as sessions:
        return sessions.faults.get(host.name)


def log_in(host):
    """The message of a login. Raises its error."""
    return login.login([host], lambda text: None).all()[host.name]


def test_the_error_names_muster_login_and_after_it_no_code_is_asked_again(guarded, asked):
    refusal = fault_of(guarded.host)
    assert isinstance(refusal, SshFault)
    assert refusal.kind == "second-factor"
    assert "muster login --hosts" in refusal.hint
    assert asked() == 0
    assert log_in(guarded.host).startswith("is open")
    assert log_in(guarded.host) == "is open already"
    for _ in range(3):
        assert fault_of(guarded.host) is None
    assert asked() == 1
    assert login.logout([guarded.host]) == {"a": "closed"}
    assert fault_of(guarded.host).kind == "second-factor"


def test_commands_files_and_streams_work_over_the_login_connection(guarded, asked):
    log_in(guarded.host)
    data = os.urandom(3 << 20)
    with opened(guarded.host) as sessions:
        session = sessions.all()["a"]
        assert session.run(["cat"], input=data[:100_000].hex().encode()).out == data[:100_000].hex()
        assert session.called_at == "", "only the user's ssh knows where it called"
        done = session.run(["sh", "-c", "echo out; echo err >&2; exit 7"], check=False)
        assert done == (7, "out\n", "err\n")
        assert session.run(["sh", "-c", "exit 255"], check=False).code == 255
        session.put(data, f"{session.home}/there/file")
        assert session.read(f"{session.home}/there/file") == data
        taken = bytearray()
        session.receive(["cat", f"{session.home}/there/file"], taken.extend)
        assert taken == data
        lines = []
        session.run(["sh", "-c", "for i in 1 2 3; do echo $i; done"], on_line=lines.append)
        assert lines == ["1", "2", "3"]
        talk = session.stream(["sh", "-c", "while read -r line; do echo got $line; done; echo over >&2; exit 3"])
        for word in (b"one", b"two"):
            talk.write(word + b"\n")
            assert talk.read_line(10) == b"got " + word
        talk.close()
        with pytest.raises(SshFault, match="did not end within"):
            session.run(["sleep", "3"], timeout_s=0.5)
        assert session.run(["echo", "still"]).out == "still\n"
        reader = session.stream(["sh", "-c", "echo $$; cat >/dev/null"])
        pid = int(reader.read_line(10))
        reader.close()
        until(lambda: not psutil.pid_exists(pid), "a command whose talk was closed to end")


def test_simultaneous_commands_get_their_own_answers(guarded, asked):
    log_in(guarded.host)
    with opened(guarded.host) as sessions:
        session, answers = sessions.all()["a"], {}

        def ask(number):
            answers[number] = session.run(["sh", "-c", f"sleep 0.2; echo {number}"]).out

        # sshd allows 10 sessions on a connection (MaxSessions).
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert answers == {number: f"{number}\n" for number in range(8)}


def test_a_tunnel_goes_over_the_connection(guarded, asked):
    log_in(guarded.host)
    with socket.create_server(("127.0.0.1", 0)) as listening, opened(guarded.host) as sessions:
        session, port = sessions.all()["a"], listening.getsockname()[1]
        channel = session.tunnel(port)
        there, _ = listening.accept()
        channel.sendall(b"ping")
        assert there.recv(4) == b"ping"
        channel.shutdown(socket.SHUT_WR)
        assert there.recv(4) == b""
        there.sendall(b"pong")
        assert channel.recv(4) == b"pong"
        there.close()
        assert channel.recv(4) == b""
        channel.close()
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))  # nobody else gets this port, and nothing listens on it
            with pytest.raises(DeployError, match="nothing listens"):
                session.tunnel(silent.getsockname()[1])


@pytest.mark.holds("own-ssh")
def test_a_port_of_the_host_serves_pages_over_the_connection(guarded, asked, tmp_path):
    (tmp_path / "page").write_text("p" * 300_000)
    served = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    )
    threading.Thread(target=served.serve_forever, daemon=True).start()
    log_in(guarded.host)
    told = []
    with opened(guarded.host) as sessions, socket.create_server(("127.0.0.1", 0)) as listening:

        def carry():
            while True:
                try:
                    ours, _ = listening.accept()
                except OSError:
                    return
                work = (sessions.all()["a"], ours, served.server_port, told.append, lambda: None)
                threading.Thread(target=port._carry, args=work, daemon=True).start()

        threading.Thread(target=carry, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/page"
        got = []

        def read():
            with urllib.request.urlopen(url, timeout=30) as answer:
                got.append(len(answer.read()))

        readers = [threading.Thread(target=read) for _ in range(12)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        assert got == [300_000] * 12
        served.shutdown()
        served.server_close()
        with pytest.raises(OSError, match=r"closed|reset|refused|without response"):
            read()
    assert all("nothing listens" in words for words in told)


def test_a_connection_that_ends_in_the_middle_is_lost_and_no_other_is_opened_for_it(guarded, asked):
    log_in(guarded.host)
    with opened(guarded.host) as sessions:
        session = sessions.all()["a"]
        clock = threading.Timer(1.0, login.logout, ([guarded.host],))
        clock.start()
        with pytest.raises(SshFault) as lost:
            session.run(["sleep", "30"])
        assert lost.value.kind == "lost"
        with pytest.raises(SshFault):
            session.run(["true"])
    assert asked() == 1


def test_a_host_behind_a_guarded_one_is_reached_through_its_connection(guarded, server, client, asked):
    inner = server(name="b")
    client.settings(
        f"Host inner\n    HostName 127.0.0.1\n    Port {inner.port}\n    ProxyJump 127.0.0.1:{guarded.port}\n"
    )
    host = conftest.Host("inner", "inner")
    assert fault_of(host).kind == "second-factor"
    log_in(guarded.host)
    with opened(host) as sessions:
        assert sessions.all()["inner"].run(["echo", "through"]).out == "through\n"
    assert asked() == 1


@pytest.mark.holds("own-ssh")
def test_an_unknown_or_changed_host_key_is_refused_before_anything_is_asked(guarded, client, asked):
    client.known_hosts.write_text("")
    assert login.login([guarded.host], lambda text: None).faults["a"].kind == "unknown-key"
    client.settings("Host *\n    StrictHostKeyChecking no")
    client.trusts(guarded)
    guarded.stop()
    guarded.new_key()
    guarded.new_key("rsa")
    guarded.start()
    with pytest.raises(DeployError, match="HAS CHANGED"):
        log_in(guarded.host)
    assert asked() == 0


@pytest.mark.holds("own-ssh")
def test_the_users_own_connection_is_used_if_a_key_is_not_enough(guarded, client, home, asked):
    control = f"Host *\n    ControlPath {home}/own-%C\n    ControlMaster auto\n    ControlPersist 60"
    client.settings(control)
    assert fault_of(guarded.host).kind == "second-factor"
    own = ["ssh", "-F", client.config, "-p", str(guarded.port), "127.0.0.1", "true"]
    subprocess.run(own, check=True, timeout=20)
    try:
        assert asked() == 1
        assert log_in(guarded.host).startswith("your own connection serves")
        with opened(guarded.host) as sessions:
            assert sessions.all()["a"].run(["echo", "hello"]).out == "hello\n"
        client.settings(f"{control}\n    StrictHostKeyChecking no")
        assert fault_of(guarded.host).kind == "second-factor", "that connection may be to anybody"
        assert asked() == 1
    finally:
        subprocess.run([*own[:-2], "-O", "exit", "127.0.0.1"], capture_output=True, timeout=20)


def test_a_dead_socket_or_a_file_in_its_place_is_ignored(server, home):
    made = server()
    log_in(made.host)
    (own,) = (home / ".ssh").glob("muster-*")
    assert login.logout([made.host]) == {"a": "closed"}
    until(lambda: not own.exists(), "the end of the connection", 10)
    own.write_text("not a socket")
    assert fault_of(made.host) is None
    own.unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(own))
    assert fault_of(made.host) is None, "a connection that is gone is not asked for"
    assert log_in(made.host).startswith("is open"), "a new one takes its place"
    login.logout([made.host])
