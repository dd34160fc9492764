"""The hostile server itself: an honest answer is taken, a real command runs in a home of its own, harm is seen."""

import os

from tests.hostile.server import Answer, look


def test_an_honest_answer_is_taken(hostile):
    there = hostile({"status": b"time 1\n"}, second={"status": Answer(b"time 1\n", b"noise\n")})
    done = there.task("status", "--hosts", there.hosts)
    assert done.code == 0, done.said
    assert there.harm() == []


def test_a_command_that_no_key_fits_really_runs_in_the_servers_own_home(hostile):
    there = hostile({"look": look()})
    server = there.servers["evil"]
    server.program("docker", "#!/bin/sh\nexit 0\n")
    (server.home / ".muster/runs/old/ranks").mkdir(parents=True)
    done = there.task("runs", "--hosts", "evil")
    assert done.code == 0, done.said
    assert "old" in done.out


def test_the_same_as_a_process_of_its_own(hostile):
    there = hostile({"status": Answer(b"", b"sh: no\n", code=9)})
    done = there.command("status", "--hosts", "evil")
    assert done.code == 1
    assert "evil" in done.said


def test_harm_is_seen(hostile):
    there = hostile({})
    assert there.harm() == []
    (there.home / "important").write_text("gone")
    (there.home / ".ssh/config").write_text("ProxyCommand x")
    run = there.runs / "R"
    run.mkdir()
    os.symlink("/etc", run / "link")
    assert there.harm("R") == ["home/.ssh/config", "home/important", "work/runs/R/link"]
