"""Tests of the hostile server itself: honest answers work, real commands run in a private home, harm is detected."""

import os

from tests.hostile.server import Answer, look


def test_an_honest_answer_is_taken(hostile):
    rig = hostile({"status": b"time 1\n"}, second={"status": Answer(b"time 1\n", b"noise\n")})
    done = rig.task("status", "--hosts", rig.hosts)
    assert done.code == 0, done.output
    assert rig.harm() == []


def test_a_command_without_a_key_really_runs_in_the_servers_own_home(hostile):
    rig = hostile({"look": look()})
    server = rig.servers["evil"]
    server.program("docker", "#!/bin/sh\nexit 0\n")
    (server.home / ".muster/runs/old/ranks").mkdir(parents=True)
    done = rig.task("runs", "--hosts", "evil")
    assert done.code == 0, done.output
    assert "old" in done.out


def test_a_command_can_run_in_its_own_process(hostile):
    rig = hostile({"status": Answer(b"", b"sh: no\n", code=9)})
    done = rig.command("status", "--hosts", "evil")
    assert done.code == 1
    assert "evil" in done.output


def test_harm_is_detected(hostile):
    rig = hostile({})
    assert rig.harm() == []
    (rig.home / "important").write_text("gone")
    (rig.home / ".ssh/config").write_text("ProxyCommand x")
    run = rig.runs / "R"
    run.mkdir()
    os.symlink("/etc", run / "link")
    assert rig.harm("R") == ["home/.ssh/config", "home/important", "work/runs/R/link"]
