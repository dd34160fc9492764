"""Logins as root: a run's processes get a user id that nobody has on any of its hosts."""

import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.host import commands, run_user
from deploy.host.reached import ReachedHosts
from deploy.host.run_user import NUMBERS
from deploy.job.cluster import Cluster, from_file
from deploy.job.inventory import hosts_of_flag
from deploy.job.options import Job
from deploy.job.values import Mount
from deploy.preflight import Answers, PreflightRequest
from deploy.preflight.checks.hosts import mounts as mounts_found
from tests.hosts import FACTS

HOME = Path(__file__).resolve().parents[2]
ROOT = dataclasses.replace(FACTS, uid=0, gid=0, user="root", home="/root")


class Machine:
    """A host where the user logs in as root: its home, and the ids that `getent` knows there. Real scripts run."""

    def __init__(self, folder, name, taken=()):
        self.name, self.home = name, folder / name
        (self.home / "tools").mkdir(parents=True)
        (self.home / ".muster/runs").mkdir(parents=True)
        tool = f'#!/bin/sh\nfor id in {" ".join(map(str, taken))}; do [ "$2" != "$id" ] || exec echo x; done; exit 2\n'
        (self.home / "tools/getent").write_text(tool)
        (self.home / "tools/getent").chmod(0o755)

    def run(self, argv, **more):
        paths = {"HOME": str(self.home), "PATH": f"{self.home}/tools:{os.environ['PATH']}"}
        return SimpleNamespace(out=subprocess.run(argv, env=paths, capture_output=True, text=True, check=True).stdout)


def chosen(*machines, job=None, run="", facts=ROOT):
    names = [machine.name for machine in machines]
    cluster = Cluster(hosts_of_flag(",".join(names)), job or Job())
    hosts, why = run_user.choose_uid(ReachedHosts(cluster, machines, dict.fromkeys(names, facts)), run)
    return hosts.job.user, why


@pytest.mark.holds("own-number")
def test_root_gets_the_first_uid_that_nobody_has_on_any_host(tmp_path):
    first, second, third = NUMBERS[:3]
    a, b = Machine(tmp_path, "a", taken=[first]), Machine(tmp_path, "b", taken=[second])
    number, why = chosen(a, b)
    assert number == third
    assert f"as uid {number} on a, b, where you log in as root: no user on these hosts has it" in why
    assert chosen(Machine(tmp_path, "c"))[0] == first
    assert NUMBERS.start > 60_577, "systemd's, for users that it makes up, end there"
    assert NUMBERS.stop <= 61_184, "its next range"


@pytest.mark.holds("own-number")
def test_an_error_says_that_every_uid_is_taken(tmp_path):
    machine = Machine(tmp_path, "a")
    (machine.home / "tools/getent").write_text("#!/bin/sh\necho somebody\n")
    with pytest.raises(DeployError, match="no uid is free from"):
        chosen(machine)


@pytest.mark.holds("own-number")
@pytest.mark.parametrize("said", ["x; touch pwned", "-1", "9" * 40])
def test_an_invalid_uid_is_refused_as_an_owner(tmp_path, said):
    a = Machine(tmp_path, "a")
    a.run = lambda argv, **more: SimpleNamespace(out=said)
    with pytest.raises(DeployError, match="an owner"):
        chosen(a, run="r1")


@pytest.mark.holds("own-number")
def test_a_resumed_run_keeps_the_uid_that_owns_its_folder(tmp_path):
    a = Machine(tmp_path, "a")
    folder = a.home / ".muster/runs/r1"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 1000, 1000)
    owner = folder.stat().st_uid
    assert chosen(a, run="r1") == (owner, f"as uid {owner} on a, where you log in as root: it owns the run's folder")


@pytest.mark.holds("own-number")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_one_host_does_not_decide_the_runs_uid_on_the_others(tmp_path):
    a, b = Machine(tmp_path, "a"), Machine(tmp_path, "b", taken=[1234])
    for machine, owner in ((a, 1234), (b, 5678)):
        folder = machine.home / ".muster/runs/r1"
        folder.mkdir()
        os.chown(folder, owner, owner)
    with pytest.raises(DeployError, match="several owners: uid 1234 on a, uid 5678 on b"):
        chosen(a, b, run="r1")
    (b.home / ".muster/runs/r1").rmdir()
    with pytest.raises(DeployError, match="b: uid 1234 is another user there, and owns the run's folder on a"):
        chosen(a, b, run="r1")


@pytest.mark.holds("own-number")
def test_cluster_toml_can_set_another_uid_but_only_for_root_logins(tmp_path):
    a = Machine(tmp_path, "a")
    assert chosen(a, job=Job(user=70001))[0] == 70001
    with pytest.raises(UsageError, match=r"on a you log in as u \(1001\)"):
        chosen(a, job=Job(user=70001), facts=FACTS)
    assert chosen(a, facts=FACTS) == (None, "as uid 1001 on a: the user that you log in as")
    path = tmp_path / "cluster.toml"
    for wrong in ("0", "-1", "true", '"root"', str(1 << 31)):
        path.write_text(f'[[hosts]]\nname = "a"\n[job]\nuser = {wrong}\n')
        with pytest.raises(UsageError, match="user"):
            from_file(path)


@pytest.mark.holds("own-number")
def test_a_start_gives_the_runs_folder_to_the_chosen_uid(tmp_path):
    if os.geteuid():
        pytest.skip("only root gives a folder away")
    a = Machine(tmp_path, "a")
    (a.home / "tools/docker").write_text("#!/bin/sh\n")
    (a.home / "tools/docker").chmod(0o755)
    for number in (1000, NUMBERS[0]):
        folder = a.home / f".muster/runs/r{number}"
        argv = commands.start(str(folder), f"{number}:{number}", ("true",), "t-0", new=True)
        paths = {"HOME": str(a.home), "PATH": f"{a.home}/tools:{os.environ['PATH']}"}
        lines = commands.base64_line(b"A=1\n") + b"\n"
        assert subprocess.run(argv, env=paths, input=lines, capture_output=True).returncode == 0
        assert folder.stat().st_uid == number
        assert (folder / "logs").stat().st_uid == number


@pytest.mark.holds("own-number")
def test_preflight_names_a_mount_that_the_uid_may_not_read_or_write_and_its_fix():
    mounts = {"a": (Mount("/srv/my data", "/data", False), Mount("/srv/old", "/old", True), Mount("/x", "/x", False))}
    facts = {"user": 70001, "mounts": {"/data": "r", "/old": "r", "/x": ""}}
    answers = Answers(PreflightRequest(), ("a",), facts={"a": facts})
    write, read = mounts_found(answers, mounts)
    assert (write.level, read.level) == ("warning", "fault")
    assert write.text.startswith("a: the run's uid there, 70001")
    assert "cannot write to /srv/my data" in write.text
    assert "sudo chown -R 70001 '/srv/my data'" in write.fix
    assert read.text.startswith("a: the run's uid there, 70001")
    assert "cannot read /x" in read.text


def test_a_probe_tries_each_mount_as_its_own_user(tmp_path):
    closed, open_one = tmp_path / "closed", tmp_path / "open"
    for folder, mode in ((closed, 0o700), (open_one, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    tmp_path.chmod(0o755)
    ask = f"from deploy.preflight.probe.facts import mounts; print(mounts([{str(closed)!r}, {str(open_one)!r}]))"
    if os.geteuid() == 0:
        for parent in itertools.takewhile(lambda folder: folder != Path(tempfile.gettempdir()), tmp_path.parents):
            parent.chmod(0o755)
        ask = f"import os; from deploy.preflight.probe.facts import mounts; os.setuid(70001); {ask}"
        wanted = {str(closed): "", str(open_one): "re"}  # the other user may read the empty folder
    else:
        wanted = {str(closed): "rwe", str(open_one): "rwe"}
    done = subprocess.run([sys.executable, "-c", ask], cwd=HOME, capture_output=True, text=True)
    assert done.stdout.strip() == str(wanted), done.stderr
