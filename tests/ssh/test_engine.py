"""Hosts' engines reached through the door, and attacks on that: real `ssh`, sshd and docker client, a fake engine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

from deploy.causes.docker_faults import DockerFault
from deploy.door import connection, session
from deploy.door.session import SshFault
from deploy.engine import reach
from lab.waiting import until
from tests.hostile.engine import FakeEngine, described
from tests.ssh.test_door import masters, one, places, start

__all__ = ["places"]
FORBIDDEN = ("AllowStreamLocalForwarding no", "AllowTcpForwarding no", "DisableForwarding yes")
DOCKER = shutil.which("docker")
CONTAINER = described("/c", {"muster.run": "r"}, {"Status": "running", "ExitCode": 0})
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b"d\r\n\x01\0\0\0\0\0\0\x05line\n\r\n"


@pytest.fixture
def engine_of(server, tmp_path):
    """engine_of(*options, docker=) -> the host, its fake engine, and that engine's socket."""

    def make(*options, docker=DOCKER):
        if not docker:
            pytest.skip("no docker client here")
        path, programs = tmp_path / "s", tmp_path / "programs"
        programs.mkdir()
        for program in ("docker", "sh", "head", "tr", "grep", "env", "sleep"):
            (programs / program).symlink_to(docker if program == "docker" else shutil.which(program))
        fake = FakeEngine([CONTAINER])
        fake.listen(path)
        variables = f"DOCKER_HOST=unix://{path} PATH={programs}"
        return server(f"SetEnv {variables}", *options).host, fake, path

    return make


def names(opened):
    return [each.name for each in reach.on_host(opened).containers("muster.run")]


def ways(opened):
    """How the engine was reached: the socket's path, or "" for the docker program."""
    return reach.on_host(opened)._reach._path


def test_an_engine_is_reached_by_a_socket_in_a_private_folder(engine_of, places):
    host, _, path = engine_of()
    with session.open_all([host]) as results:
        assert names(one(results)) == ["c"]
        assert ways(one(results)) == str(path)
        (folder,) = places.glob("*/to")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("forbidden", FORBIDDEN)
@pytest.mark.parametrize("most", [1, 10])
def test_without_forwarding_the_hosts_docker_client_reaches_the_engine(engine_of, places, forbidden, most):
    host, _, _ = engine_of(forbidden, f"MaxSessions {most}")
    with session.open_all([host]) as results:
        assert names(one(results)) == ["c"]
        assert ways(one(results)) == ""
        assert one(results).run(["echo", "on"]).out == "on\n"
        assert names(one(results)) == ["c"]


def test_one_session_is_enough_for_the_engine_and_for_commands(engine_of, places):
    host, _, path = engine_of("MaxSessions 1")
    with session.open_all([host]) as results:
        assert names(one(results)) == ["c"]
        assert one(results).run(["echo", "on"]).out == "on\n"
        assert ways(one(results)) == str(path)


def test_a_docker_that_is_a_script_is_the_only_way_to_its_engine(engine_of, places, tmp_path):
    """Example: the login runs Docker as `sudo docker`, or has Podman's docker command."""
    program = tmp_path / "sudo-docker"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("docker")} "$@"\n')
    program.chmod(0o755)
    host, _, _ = engine_of(docker=program)
    with session.open_all([host]) as results:
        assert names(one(results)) == ["c"]
        assert ways(one(results)) == ""


def test_a_login_without_an_engine_and_one_without_docker_are_told_apart(engine_of, places, tmp_path):
    host, _, path = engine_of()
    path.unlink()
    with session.open_all([host]) as results, pytest.raises(DockerFault) as down:
        names(one(results))
    (tmp_path / "programs/docker").unlink()
    with session.open_all([host]) as results, pytest.raises(DockerFault) as missing:
        names(one(results))
    assert (down.value.cause.name, missing.value.cause.name) == ("docker-down", "docker-missing")


@pytest.mark.parametrize("forbidden", [(), FORBIDDEN[:1]], ids=["socket", "program"])
def test_a_connection_lost_midway_is_not_taken_for_the_end_of_a_log(engine_of, places, forbidden):
    host, fake, _ = engine_of(*forbidden)
    fake.odd["/logs"] = CHUNKED + LINE  # the last chunk never comes
    held = threading.Event()
    fake.after_odd = lambda: held.wait(30)
    with session.open_all([host]) as results:
        pieces = reach.on_host(one(results)).logs("c")
        assert next(pieces) == b"line\n"
        for master in masters(places):
            os.kill(master.pid, signal.SIGKILL)
        with pytest.raises(SshFault) as lost:
            next(pieces)
        held.set()
    assert lost.value.kind == "lost"


def test_a_silent_engine_is_reported_in_time(engine_of, places):
    host, fake, _ = engine_of()
    held = threading.Event()
    with session.open_all([host]) as results:
        engine = reach.on_host(one(results))
        assert engine.version() == "27.3.1"
        fake.odd["/version"], fake.after_odd = b"", lambda: held.wait(30)
        began = time.monotonic()
        with pytest.raises(DockerFault) as silent:
            engine.version(0.5)
        held.set()
    assert time.monotonic() - began < 5
    assert silent.value.cause.name == "docker-silent"


FOLLOWS = """
import sys
from deploy.job.inventory import Host
from deploy.door import session
from deploy.engine import reach
with session.open_all([Host("a", "127.0.0.1", int(sys.argv[1]))]) as results:
    for piece in reach.on_host(results.all()["a"]).logs("c"):
        print("follows", flush=True)
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_program_ended_while_following_leaves_nothing(engine_of, places, blow):
    host, fake, _ = engine_of()
    fake.odd["/logs"] = CHUNKED + LINE
    held = threading.Event()
    fake.after_odd = lambda: held.wait(30)
    program = start(FOLLOWS, host.port)
    try:
        assert program.stdout.readline() == "follows\n"
        assert list(places.glob("*/to/*"))
        os.kill(program.pid, blow)
        program.wait(20)
        until(lambda: not list(places.iterdir()), "no socket and no folder to be left", 20)
        until(lambda: not masters(places), "no connection to be left", 20)
    finally:
        held.set()
        program.kill()


def connects(path):
    """Whether somebody listens at a socket."""
    with socket.socket(socket.AF_UNIX) as ours:
        return ours.connect_ex(str(path)) == 0


def test_a_forwarded_socket_does_not_stay_in_the_users_own_connection(engine_of, client, places):
    host, _, path = engine_of()
    line = ["ssh", "-F", client.config, "-f", "-N", "-M", "-S", f"{places}/users", "-p", str(host.port), "127.0.0.1"]
    subprocess.run(line, check=True, timeout=20)
    try:
        users = connection.find_master(f"{places}/users")
        users.forward(f"{places}/s", str(path))
        assert connects(places / "s")
        users.close()
        until(lambda: not connects(places / "s"), "nobody to listen there", 10)
        assert connection.find_master(f"{places}/users"), "the connection is the user's"
    finally:
        (places / "s").unlink(missing_ok=True)
        subprocess.run(["ssh", "-S", f"{places}/users", "-O", "exit", "x"], check=False, capture_output=True)
