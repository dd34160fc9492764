"""`muster deploy --wait`: hosts wait and start the run without the command, after a reboot, and in a queue."""

import subprocess
import uuid

import pytest

from lab import waiting
from tests.cluster.control import BASE, HOME, Control

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("trains", flush=True)
time.sleep(float(sys.argv[1]))
"""


class User(Control):
    """A control side that may log in under another name."""

    def __init__(self, rack, login="muster"):
        super().__init__(rack)
        if login != "muster":
            own = rack.ssh_config.with_name(f"{login}-{uuid.uuid4().hex[:6]}")
            own.write_text(rack.ssh_config.read_text().replace("User muster", f"User {login}"))
            self.environment["MUSTER_SSH_CONFIG"] = str(own)
        self.login = login

    def wait(self, folder, *words, seconds=0):
        words = ("--wait", "--folder", str(folder), "--script", f"train.py {seconds}", "--detach", *words)
        done = self.deploy(*words)
        assert done.returncode == 0, done.stderr

    def states(self, host=None):
        """What `muster status` reports about the run's node on each host, or on `host`."""
        rows = [row for row in self.rows("status") if row.get("run") == self.run]
        return [row["word"] for row in rows if host in (None, row["host"])]

    def clean(self):
        super().clean()
        if self.login != "muster":
            (HOME / self.environment["MUSTER_SSH_CONFIG"]).unlink()


def claims(rack, hosts):
    look = "cd /var/tmp && find muster-claims* -type f ! -name '*.lock' 2>/dev/null; true"
    return [line for host in hosts for line in rack.on(host, look).split()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def alice(rack):
    made = User(rack)
    yield made
    made.clean()


@pytest.fixture
def blocker(rack, folder):
    """A run on both hosts for which the other runs have to wait."""
    made = User(rack)
    assert made.deploy("--folder", str(folder), "--script", "train.py 600", "--detach").returncode == 0
    yield made
    made.clean()


@pytest.fixture
def bob(rack):
    for host in rack.hosts[:2]:
        make = "useradd --create-home --shell /bin/bash --groups docker bob && cp -r /home/muster/.ssh /home/bob/"
        rack.root(host, "sh", "-c", f"{make} && chown -R bob:bob /home/bob/.ssh")
    made = User(rack, "bob")
    yield made
    made.clean()
    for host in rack.hosts[:2]:
        rack.root(host, "userdel", "--force", "--remove", "bob")


def began(user):
    """When the first rank of a run began and the last one ended, from the events that its hosts recorded."""
    assert user.fab("attach", "--run", user.run).returncode == 0
    first = min(event["t"] for rank in (0, 1) for event in waiting.events(user.dir, rank, "began"))
    return first, max(event["t"] for rank in (0, 1) for event in waiting.events(user.dir, rank, "ended"))


def test_two_users_wait_in_opposite_order_without_their_commands_and_take_turns(rack, alice, bob, blocker, folder):
    words = ("--wait", "--folder", str(folder), "--script", "train.py 3")
    command = alice.start(*words)
    waiting.until(lambda: alice.states() == ["waits", "waits"], "alice's nodes to wait")
    command.kill()
    command.wait()
    bob.hosts = bob.hosts[::-1]
    bob.wait(folder, seconds=3)
    waiting.until(lambda: bob.states() == ["waits", "waits"], "bob's nodes to wait")
    shown = {
        f"run {blocker.run} (muster) is there; since ",
        f"run {alice.run} (muster, uid 1000) waits there and is next; since ",
    }
    waiting.until(lambda: all(each in alice.fab("status").stdout for each in shown), "who waits for whom")
    assert f"run {blocker.run} (muster) is there" in alice.fab("logs", "--run", alice.run).stdout
    assert blocker.fab("stop", "--run", blocker.run, "--now").returncode == 0
    first, second = began(alice), began(bob)
    assert first[1] <= second[0], "they take turns"
    assert alice.outcome()["verdict"] == bob.outcome()["verdict"] == "done"
    waiting.until(lambda: not claims(rack, alice.hosts), "the claims to be given back")


def test_a_rebooted_host_keeps_its_place_in_the_queue(rack, alice, folder):
    one = User(rack)
    one.hosts = one.hosts[:1]
    try:
        assert one.deploy("--folder", str(folder), "--script", "train.py 600", "--detach").returncode == 0
        alice.wait(folder, "--max-hours", "0.05")
        waiting.until(lambda: alice.states() == ["waits", "waits"], "both nodes to wait")
        (before,) = claims(rack, alice.hosts[1:])
        subprocess.run(["docker", "restart", "--time", "20", rack.container(alice.hosts[1])], check=True)
        waiting.until(lambda: rack.is_up(alice.hosts[1]), "the host", 60)
        waiting.until(lambda: alice.states(alice.hosts[1]) == ["waits"], "its node to wait again", 60)
        assert claims(rack, alice.hosts[1:]) == [before]
        assert one.fab("down", "--run", one.run).returncode == 0
        assert one.outcome()["verdict"] == "stopped", "a run that is removed has ended, and its record says so"
        done = alice.fab("attach", "--run", alice.run)
        assert done.returncode == 0, done.stderr
        assert "trains" in done.stdout
    finally:
        one.clean()


def test_a_run_that_waits_can_be_stopped_and_leaves_nothing(rack, alice, blocker, folder):
    alice.wait(folder, "--on-end", 'echo "$MUSTER_END $MUSTER_EXIT_CODE" >>ended')
    waiting.until(lambda: alice.states() == ["waits", "waits"], "its nodes to wait")
    again = alice.fab("deploy", "--image", BASE, "--folder", str(folder), "--resume", alice.run)
    assert f"it is still running on {alice.hosts[0]}" in again.stderr, "it cannot be started twice"
    stopped = alice.fab("stop", "--run", alice.run)
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped while it waited" in stopped.stderr
    assert not alice.containers()
    assert len(claims(rack, alice.hosts)) == 2, "only the other run has a claim"
    look = f"cd ~/.muster/runs/{alice.run} && cat work/ended; true"
    waiting.until(lambda: rack.on(alice.hosts[0], look) == "stopped 75", "the end to be told")


def test_a_run_whose_network_breaks_while_it_waits_is_refused_with_the_reason(rack, alice, blocker, folder):
    alice.wait(folder)
    waiting.until(lambda: alice.states() == ["waits", "waits"], "its nodes to wait")
    first, second = alice.hosts
    drop = ["iptables", "-I", "INPUT", "-p", "tcp", "--syn", "--dport", "32768:60999", "-s", rack.address(second)]
    rack.root(first, *drop, "-j", "DROP")
    try:
        assert blocker.fab("down", "--run", blocker.run).returncode == 0
        done = alice.fab("attach", "--run", alice.run)
    finally:
        drop[1] = "-D"
        rack.root(first, *drop, "-j", "DROP")
    assert done.returncode == 2, done.stderr
    assert alice.outcome()["verdict"] == "refused"
    where = f"{second} cannot reach {first} ({rack.address(first)}:"
    assert f"the rehearsal before the start failed: {where}" in alice.outcome()["message"]
