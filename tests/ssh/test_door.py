"""The door under attack: odd clients, odd settings, killed processes, stalling servers. Real `ssh`, real sshd."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from deploy.core.errors import UsageError
from deploy.door import session
from deploy.job.inventory import Host
from lab.ports import free_port
from lab.waiting import until
from tests.started import started

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture
def places(monkeypatch):
    """A private, short folder for sockets; the fixture checks that it is empty at the end."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        until(lambda: not list(Path(folder).iterdir()), "every folder of sockets to be gone", 20)
        until(lambda: not masters(folder), "every connection to be gone", 20)


@pytest.fixture
def program(tmp_path, monkeypatch, client):
    """program(script) puts this script as `ssh` first on the PATH."""

    def put(script):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return put


def masters(folder):
    """The ssh processes that hold a connection open for Muster."""
    lines = [(each, each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    return [each for each, line in lines if "-M" in line and any(word.startswith(f"{folder}/") for word in line)]


def fault_of(host):
    """The error with which a host cannot be opened."""
    with session.open_all([host]) as results:
        return results.faults[host.name]


def one(results):
    """The only session."""
    (opened,) = results.all().values()
    return opened


def start(script, *words):
    """Start a program that uses the door, in its own process session."""
    line = [sys.executable, "-c", textwrap.dedent(script), *map(str, words)]
    size = {**os.environ, "COLUMNS": "80", "LINES": "24"}
    return subprocess.Popen(
        line, cwd=HOME, env=size, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def test_a_greeting_that_looks_like_ssh_errors_is_not_an_error(server, places, tmp_path):
    greeting = tmp_path / "greeting"
    words = "REMOTE HOST IDENTIFICATION HAS CHANGED\nPermission denied (publickey).\nConnection refused\n\x1b[31m"
    greeting.write_text(words * 500)
    with session.open_all([server(f"Banner {greeting}").host]) as results:
        assert one(results).run(["echo", "on"]) == (0, "on\n", "")


def test_what_a_host_says_before_it_hangs_up_is_shown_without_control_characters(server, places, tmp_path):
    greeting = tmp_path / "greeting"
    greeting.write_text("\x1b]0;evil\x07\n" * 100)
    fault = fault_of(server(f"Banner {greeting}", "PubkeyAuthentication no", "PasswordAuthentication yes").host)
    assert "\x1b" not in fault.message + fault.hint


@pytest.mark.parametrize("most", [1, 2])
def test_many_commands_run_together_over_connections_with_few_sessions(server, places, most):
    with session.open_all([server(f"MaxSessions {most}").host]) as results:
        opened, answers = one(results), {}

        def ask(number):
            answers[number] = opened.run(["sh", "-c", f"sleep 1; echo {number}"]).out

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert answers == {number: f"{number}\n" for number in range(4)}


def test_a_lost_extra_connection_is_reopened_while_the_first_one_lives(server, places):
    with session.open_all([server("MaxSessions 1").host]) as results:
        opened = one(results)
        before = set(masters(places))
        kept = [opened.stream(["cat"]) for _ in range(2)]
        (further,) = set(masters(places)) - before
        further.kill()
        further.wait()
        assert opened.run(["echo", "on"]).out == "on\n"
        assert opened.is_open
        for stream in kept:
            stream.close()


def test_a_server_that_allows_no_session_is_reported(server, places):
    assert fault_of(server("MaxSessions 0").host).kind == "sessions"


def test_a_jump_host_is_judged_as_strictly_as_the_host(client, server, places):
    door, inner = server(name="door"), server(name="a")
    client.trusts(inner)
    client.settings(
        *("Host inner", "HostName 127.0.0.1", f"Port {inner.port}", f"ProxyJump 127.0.0.1:{door.port}"),
        *("Host *", "StrictHostKeyChecking no", "BatchMode no"),
    )
    fault = fault_of(Host("inner", "inner"))
    assert fault.kind == "unknown-key"
    assert "its jump host" in fault.message


def test_a_dying_jump_host_ends_only_the_commands_behind_it(server, places):
    door, inner, other = server(name="door"), server(name="a"), server(name="b")
    behind = Host("a", "127.0.0.1", inner.port, gateway=f"127.0.0.1:{door.port}")
    with session.open_all([behind, other.host]) as results:
        opened = results.all()
        clock = threading.Timer(1.0, door.stop)
        clock.start()
        with pytest.raises(session.SshFault) as lost:
            opened["a"].run(["sleep", "60"])
        assert lost.value.kind == "lost"
        assert opened["b"].run(["echo", "on"]).out == "on\n"


def test_a_temporary_folder_too_long_for_a_socket_does_not_matter(server, monkeypatch, tmp_path):
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with session.open_all([server().host]) as results:
        assert one(results).run(["echo", "on"]).out == "on\n"
    assert not list(deep.iterdir())


def test_settings_with_an_odd_path_are_read(client, server, places, monkeypatch):
    host, odd = server().host, client.folder / 'my [ssh] *"config'
    client.config.rename(odd)
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(odd))
    with session.open_all([host]) as results:
        assert one(results).run(["echo", "on"]).out == "on\n"


def test_a_missing_ssh_program_is_reported(client, places, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no `ssh` on this machine") as caught, session.open_all([Host("a", "a")]):
        pass
    assert "openssh-client" in caught.value.hint


def test_an_outdated_ssh_is_reported(program, places):
    program(
        'case "$*" in *-V*) echo OpenSSH_6.6p1 >&2; exit 0 ;; esac\n'
        'echo "$2: line 14: Bad configuration option: remotecommand" >&2; exit 255'
    )
    with pytest.raises(UsageError, match=r"OpenSSH_6\.6p1.*too old.*remotecommand"), session.open_all([Host("a", "a")]):
        pass


@pytest.mark.parametrize("script", ["sleep 60 & sleep 60", "yes x", "sleep 60 >&2 & exec sleep 60"])
def test_an_ssh_that_does_not_end_is_ended(program, places, monkeypatch, script):
    monkeypatch.setattr("deploy.door.settings._LONGEST_S", 0.5)
    program(script)
    with pytest.raises(UsageError, match="too much"), session.open_all([Host("a", "a")]):
        pass


def test_a_proxy_command_that_prints_without_end_fails_in_time(client, places, monkeypatch):
    monkeypatch.setattr("deploy.door.connection.TRIES", 1)
    client.settings("Host gpu-a", "ProxyCommand yes SSH", "Host *", "ConnectTimeout 1")
    assert fault_of(Host("gpu-a", "gpu-a")).message.startswith("gpu-a: ")


def test_a_login_that_stalls_after_the_key_exchange_is_ended(client, server, places):
    if os.getuid() != 0:
        pytest.skip("it takes root to let an sshd run a command as another user")
    stalls = server("AuthorizedKeysCommand /bin/sleep 600", "AuthorizedKeysCommandUser root")
    (stalls.folder / "authorized").write_text("")
    client.settings("Host *", "ConnectTimeout 1")
    fault = fault_of(stalls.host)
    assert "the login did not end within 3 s" in fault.message


@pytest.mark.holds("connections-end")
def test_session_features_from_the_users_settings_are_not_used(client, server, places, tmp_path, monkeypatch):
    """An agent, a terminal, local and remote commands, ports: Muster uses none of them."""
    with started(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL) as agent:
        until((tmp_path / "agent").exists, "the agent", 10)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        port = free_port()
        client.settings(
            *("Host *", "ForwardAgent yes", "ForwardX11 yes", "RequestTTY force", "RemoteCommand echo theirs"),
            *("PermitLocalCommand yes", f"LocalCommand touch {tmp_path}/mark", f"LocalForward {port} 127.0.0.1:1"),
            *("SendEnv SECRET_*", "ExitOnForwardFailure yes"),
        )
        monkeypatch.setenv("SECRET_KEY", "sesame")
        with session.open_all([server("AcceptEnv *").host]) as results:
            opened = one(results)
            seen = opened.run(["sh", "-c", "env; tty; echo mine"], check=False).out
            listening = [each.laddr.port for each in psutil.net_connections() if each.status == "LISTEN"]
        agent.kill()
    assert seen.endswith("not a tty\nmine\n")
    assert not any(word in seen for word in ("SSH_AUTH_SOCK", "SECRET_KEY", "DISPLAY=", "theirs"))
    assert not (tmp_path / "mark").exists()
    assert port not in listening


def test_a_connection_with_a_killed_ssh_is_lost_and_a_new_one_can_be_opened(server, places):
    host = server().host
    with session.open_all([host]) as results:
        opened = one(results)
        clock = threading.Timer(1.0, lambda: [each.kill() for each in masters(places)])
        clock.start()
        with pytest.raises(session.SshFault) as lost:
            opened.run(["sleep", "60"])
        assert lost.value.kind == "lost"
        with pytest.raises(session.SshFault, match="was lost"):
            opened.run(["true"])
        assert not opened.is_open
    with session.open_all([host]) as results:
        assert one(results).run(["echo", "on"]).out == "on\n"


def test_a_connection_with_a_suspended_ssh_ends_with_the_command(server, places):
    with session.open_all([server().host]) as results:
        assert one(results).run(["true"]).code == 0
        (held,) = masters(places)
        held.suspend()
    until(lambda: not held.is_running() or held.status() == psutil.STATUS_ZOMBIE, "its end", 20)


USES = """
    import sys
    from deploy.job.inventory import Host
    from deploy.door import session
    with session.open_all([Host("a", "127.0.0.1", int(sys.argv[1]))]) as results:
        (opened,) = results.all().values()
        print("open", flush=True)
        COMMAND
"""


@pytest.mark.holds("connections-end")
@pytest.mark.parametrize("command", ["sys.stdin.read()", 'opened.run(["sleep", "600"], timeout_s=None)'])
def test_a_killed_program_leaves_no_connection_and_no_remote_command(server, places, command):
    made = server()
    program = start(USES.replace("COMMAND", command), made.port)
    assert program.stdout.readline() == "open\n"
    until(lambda: masters(places), "the connection", 10)
    until(lambda: "600" not in command or len(sleepers(made)) == 1, "the command there", 20)
    began = time.monotonic()
    program.kill()
    program.communicate()
    until(lambda: not masters(places) and not list(places.iterdir()), "the end of the connection, and its folder", 10)
    assert time.monotonic() - began < 10
    until(lambda: not made.children(), "the end of it there", 10)


def sleepers(server):
    """The ids of `sleep` processes on the server."""
    return [pid for pid in server.children() if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


def test_a_connection_ends_even_if_the_program_and_its_guard_are_killed(server, places):
    program = start(USES.replace("COMMAND", "sys.stdin.read()"), server().port)
    assert program.stdout.readline() == "open\n"
    family = [*psutil.Process(program.pid).children(), psutil.Process(program.pid)]
    assert len(family) == 2
    for each in family:
        each.kill()
    program.communicate()
    until(lambda: not masters(places), "the end of the connection", 40)
    for left in places.iterdir():  # a folder whose socket no longer answers
        for file in left.iterdir():
            file.unlink()
        left.rmdir()


def test_ctrl_c_in_the_terminal_does_not_close_the_connection(server, places):
    command = """
        try:
            opened.run(["sleep", "600"], timeout_s=None)
        except KeyboardInterrupt:
            print(opened.run(["echo", "still here"]).out, flush=True)
    """
    made = server()
    indented = textwrap.indent(textwrap.dedent(command), " " * 8).strip()
    program = start(USES.replace("COMMAND", indented), made.port)
    assert program.stdout.readline() == "open\n"
    until(lambda: len(sleepers(made)) == 1, "the command there", 20)
    os.killpg(program.pid, signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    assert out.strip() == "still here"


def test_ctrl_c_during_a_login_leaves_nothing(client, places):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        program = start(USES.replace("COMMAND", "pass"), port)
        silent.accept()[0].close()
        call, _ = silent.accept()  # the second attempt; the first connection was closed
        os.killpg(program.pid, signal.SIGINT)
        program.communicate(timeout=20)
        with call:
            call.settimeout(10)
            while call.recv(1 << 16):
                pass


def test_an_interactive_command_gets_typed_input_and_the_window_size(server, places):
    made = server()
    (made.home / ".bashrc").write_text("echo NOISE\n")
    frames = b"r\x00\x18\x00\x50" + b"d\x00\x00\x00\x05typed" + b"d\x00\x00\x00\x01\x04"
    talk = f"head -c {len(frames)} | od -An -v -tx1 -w{len(frames)}; echo why >&2; exit 5"
    command = f'code = opened.converse(["sh", "-c", {talk!r}])'
    program = start(USES.replace("COMMAND", f'{command}; print("code", code, flush=True)'), made.port)
    assert program.stdout.readline() == "open\n"
    out, _ = program.communicate("typed", timeout=60)
    assert out == f" {frames.hex(' ')}\ncode 5\n"
