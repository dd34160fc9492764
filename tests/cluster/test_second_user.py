"""Two users share a host's engine and a run id: neither one's failed start, stop or clean changes the other's things.

The rack's first host has a second user who may use Docker. This user acts as an attacker, or by accident.
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab import waiting

HOME = Path(__file__).resolve().parents[2]
IMAGE = "muster-trainer:cpu"
PROGRAM = """
import sys
from deploy.commands import main as cli
sys.exit(cli.run(sys.argv[1:]))
"""
# Both users checked before either had started: the check does not see the other's run, but the engine refuses the name.
RACE = f"from deploy.hosts import which_run\nwhich_run.refuse_foreign = lambda *_: None\n{PROGRAM}"


class User:
    """A person with their own machine who deploys to the rack's first host, with the login `name`."""

    def __init__(self, rack, folder, name):
        self.rack, self.name, self.host, self.folder = rack, name, rack.hosts[0], folder / name
        self.folder.mkdir()
        config = rack.ssh_config.read_text().replace("User muster", f"User {name}")
        (self.folder / "ssh_config").write_text(config)

    def fab(self, task, *words, program=PROGRAM):
        own = {"MUSTER_SSH_CONFIG": str(self.folder / "ssh_config"), "PYTHONPATH": str(HOME)}
        environment, line = {**os.environ, **own}, [sys.executable, "-c", program, task, "--hosts", self.host, *words]
        return subprocess.run(line, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)

    def deploy(self, run, program=PROGRAM):
        words = ("--run", run, "--image", IMAGE, "--detach", "--args", "--steps 1000000 --checkpoint-every 0")
        return self.fab("deploy", *words, program=program)


@pytest.fixture(scope="module")
def users(rack, tmp_path_factory):
    """alice, whose login is `muster` and who has a live run, and bob."""
    host, folder = rack.hosts[0], tmp_path_factory.mktemp("users")
    rack.root(host, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", "docker", "bob")
    rack.root(host, "cp", "-r", "/home/muster/.ssh", "/home/bob/.ssh")
    rack.root(host, "chown", "-R", "bob:bob", "/home/bob/.ssh")
    alice, bob = User(rack, folder, "muster"), User(rack, folder, "bob")
    alice.run = f"test-{uuid.uuid4().hex[:8]}"
    try:
        done = alice.deploy(alice.run)
        assert done.returncode == 0, done.stderr
        waiting.until(lambda: containers(alice) and "Up" in containers(alice), "a run that runs", 60)
        yield alice, bob
    finally:
        alice.fab("down", "--run", alice.run)
        rack.root(host, "sh", "-c", f"rm -rf /home/muster/.muster/runs/{alice.run}; userdel --force --remove bob")


def containers(user):
    """The containers of alice's run as the engine lists them, whoever owns them."""
    return user.rack.on(
        user.host, f"docker ps -a --filter label=muster.run={user.run} --format '{{{{.ID}}}} {{{{.Status}}}}'"
    )


@pytest.fixture
def stays(users):
    """Check after the test that alice's container is the same and still runs, and that her folder exists."""
    alice, _ = users
    before = containers(alice).split()[0]
    yield
    assert containers(alice).split()[:2] == [before, "Up"]
    assert alice.rack.on(alice.host, f"ls ~/.muster/runs/{alice.run}/logs") is not None


@pytest.mark.holds("ours-only")
@pytest.mark.parametrize(
    ("task", "named"),
    [("stop", True), ("stop", False), ("attach", True), ("down", False), ("logs", True), ("fetch", True)],
)
def test_another_users_run_is_named_and_left_alone(users, stays, task, named):
    alice, bob = users
    done = bob.fab(task, *(("--run", alice.run) if named else ()))
    if task == "down":
        assert done.returncode == 0
        assert f"left {alice.run}, which belongs to muster" in done.stdout + done.stderr
    else:
        assert done.returncode != 0
    if named and task in ("stop", "attach"):
        assert "belongs to muster" in done.stderr


@pytest.mark.holds("ours-only")
def test_another_users_run_id_is_refused_before_anything_is_sent(users, stays):
    alice, bob = users
    done = bob.deploy(alice.run)
    assert done.returncode != 0
    assert "belongs to muster" in done.stderr
    assert bob.rack.root(bob.host, "sh", "-c", f"ls -d /home/bob/.muster/runs/{alice.run} || echo none") == "none"


@pytest.mark.holds("own-start-only")
def test_a_start_that_lost_the_race_for_an_id_removes_only_its_own_things(users, stays):
    alice, bob = users
    done = bob.deploy(alice.run, program=RACE)
    assert "was not started" in done.stderr, done.stderr
    assert "removing what this start created" in done.stderr
    assert bob.rack.root(bob.host, "sh", "-c", f"ls -d /home/bob/.muster/runs/{alice.run} || echo none") == "none"


@pytest.mark.holds("ours-only")
def test_status_shows_whose_run_it_is_and_ignores_the_callers_folder_of_that_name(users, stays):
    alice, bob = users
    planted = {"t": 1.0, "kind": "step", "step": 4711, "steps": 5000, "rank": 0}
    ranks = f"/home/bob/.muster/runs/{alice.run}/ranks"
    script = f"mkdir -p {ranks}; echo '{json.dumps(planted)}' >{ranks}/rank-0.jsonl; chown -R bob /home/bob/.muster"
    bob.rack.root(bob.host, "sh", "-c", script)
    (row,) = [json.loads(line) for line in bob.fab("status", "--json").stdout.splitlines()]
    assert (row["run"], row["user"], row["step"]) == (alice.run, "muster", None)
    bob.rack.root(bob.host, "rm", "-rf", f"/home/bob/.muster/runs/{alice.run}")


@pytest.mark.holds("ours-only")
def test_clean_neither_lists_nor_removes_another_users_things(users, stays):
    alice, bob = users
    own = {name: f"muster-packages-{uid}-{uuid.uuid4().hex}" for name, uid in (("muster", 1000), ("bob", 1001))}
    for name, volume in own.items():
        labels = f"--label muster.packages=x --label muster.user={name}"
        bob.rack.on(bob.host, f"docker volume create {labels} {volume}")
    alices = f"mkdir -p ~/.muster/cache/1000/huggingface; ls ~/.muster/runs/{alice.run}; ls -d ~/.muster/cache/1000/*"
    before = alice.rack.on(alice.host, alices)
    try:
        listed = [json.loads(line) for line in bob.fab("clean", "--json").stdout.splitlines()]
        assert {row["name"] for row in listed if row["kind"] == "kept"} == {own["bob"]}
        refused = bob.fab("clean", "--runs", alice.run, "--yes")
        assert refused.returncode == 2
        assert "no host has it" in refused.stderr
        done = bob.fab("clean", "--runs", "all", "--images", "--packages", "--caches", "--yes")
        assert done.returncode == 0, done.stderr
        volumes = bob.rack.on(bob.host, "docker volume ls --quiet").split()
        assert own["muster"] in volumes
        assert own["bob"] not in volumes
        assert alice.rack.on(alice.host, alices) == before
        assert alice.fab("clean", "--json").stdout.count(own["muster"]) == 1
    finally:
        bob.rack.on(bob.host, f"docker volume rm --force {' '.join(own.values())}")


@pytest.mark.holds("labelled-only")
def test_a_container_that_only_claims_to_be_ours_is_left_alone(users, stays):
    alice, bob = users
    image = bob.rack.on(bob.host, "docker image ls --quiet | head -n 1")
    labels = f"--label muster.run={alice.run} --label muster.node=a --label muster.user=bob"
    made = bob.rack.on(bob.host, f"docker create {labels} --label muster.start=-0 {image} true")
    try:
        assert bob.fab("down").returncode == 0
        assert alice.fab("down", "--run", "another").returncode == 0
        assert bob.rack.on(bob.host, "docker", "inspect", "--format", "{{.Id}}", made) == made
    finally:
        bob.rack.on(bob.host, "docker", "rm", made)
