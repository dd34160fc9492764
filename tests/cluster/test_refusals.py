"""What `muster deploy` refuses on the rack: it names every host at fault, and leaves nothing of the run on any."""

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.door.session import open_all
from deploy.host import lock
from deploy.job.inventory import hosts_of_flag

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
BASE = "muster-trainer:cpu"
RUN = f"refused-{uuid.uuid4().hex[:8]}"


class User:
    """A user with a folder of code and the hosts of the rack."""

    def __init__(self, rack, folder):
        self.rack, self.folder, self.hosts = rack, folder, rack.hosts[:2]
        self.environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}

    def deploy(self, *words, hosts=None, script="train.py"):
        where = ["--hosts", ",".join(hosts or self.hosts), "--folder", str(self.folder), "--image", BASE]
        line = [FAB, "deploy", *where, "--run", RUN, "--script", script, *words]
        return subprocess.run(line, cwd=HOME, env=self.environment, capture_output=True, text=True, timeout=120)

    def is_clean(self):
        """Whether neither the hosts nor this machine have anything of the run."""
        command = f"docker ps -aq --filter label=muster.run={RUN}; ls -d ~/.muster/runs/{RUN}* 2>/dev/null; true"
        answers = [self.rack.on(host, command) for host in self.hosts]
        return not any(answers) and not (HOME / "runs" / RUN).exists()

    @contextmanager
    def instead(self, host, name, script):
        """Replace a command of the host by a script inside the `with` block."""
        path = f"/usr/local/bin/{name}"
        self.rack.root(host, "sh", "-c", f"printf '%s\\n' '#!/bin/sh' '{script}' >{path}; chmod 755 {path}")
        try:
            yield
        finally:
            self.rack.root(host, "rm", path)


@pytest.fixture
def user(rack, tmp_path):
    (tmp_path / "train.py").write_text("print('training')\n")
    return User(rack, tmp_path)


@contextmanager
def dropped(rack, host, port=29500):
    """Let a firewall on the host drop all packets to a port."""
    rule = ("INPUT", "-p", "tcp", "--dport", str(port), "-j", "DROP")
    rack.root(host, "iptables", "-I", *rule)
    try:
        yield
    finally:
        rack.root(host, "iptables", "-D", *rule)


def test_hosts_that_cannot_reach_each_other_are_refused_by_preflight(user):
    first, second = user.hosts
    with dropped(user.rack, first), dropped(user.rack, second):
        done = user.deploy()
        planned = user.deploy("--dry-run")
    assert done.returncode == 3, done.stderr
    assert "TCP 29500 is dropped between" in done.stderr
    assert user.is_clean()
    # A dry run does not probe: it tries only this port, and names every host.
    assert "2 of 2 hosts failed" in planned.stderr
    assert f"{first}: cannot reach {user.rack.address(second)}:29500 from here: packets are dropped" in planned.stderr
    assert f"{second}: cannot reach {user.rack.address(first)}:29500 from here: packets are dropped" in planned.stderr


def test_a_full_disk_is_reported_before_anything_is_sent(user):
    (user.folder / "code.bin").write_bytes(os.urandom(12_000_000))
    second = user.hosts[1]
    received = {host: int(user.rack.on(host, "cat", "/sys/class/net/eth0/statistics/rx_bytes")) for host in user.hosts}
    shown = 'echo "Filesystem 1024-blocks Used Available Capacity Mounted on"; echo "/dev/x 9999 9000 999 99% /"'
    with user.instead(second, "df", f'case "$2" in *docker*) {shown};; *) exec /usr/bin/df "$@";; esac'):
        done = user.deploy()
    assert done.returncode == 1
    assert second in done.stderr
    assert "docker system df" in done.stderr
    for host, before in received.items():  # preflight itself sends 2 MB
        assert int(user.rack.on(host, "cat", "/sys/class/net/eth0/statistics/rx_bytes")) - before < 6_000_000
    assert user.is_clean()


def test_every_host_without_an_engine_that_answers_is_named_with_its_cause(user):
    first, second = user.hosts
    absent = 'echo "sh: docker: not found" >&2; exit 127'
    with (
        user.instead(first, "docker", absent),
        user.instead(second, "docker", 'exec /usr/bin/docker -H unix:///no "$@"'),
    ):
        done = user.deploy()
    assert done.returncode == 1
    assert "2 of 2 hosts failed" in done.stderr
    assert f"{first}: there is no `docker` command" in done.stderr
    assert f"{second}: the Docker engine does not answer" in done.stderr
    assert user.is_clean()


def test_one_machine_under_two_names_is_refused(user):
    first = user.hosts[0]
    done = user.deploy(hosts=[first, f"muster@{user.rack.address(first)}"])
    assert done.returncode == 2
    assert "are the same host" in done.stderr
    assert user.is_clean()


def test_a_missing_script_an_empty_and_a_huge_folder_are_refused(user):
    missing = user.deploy(script="trian.py")
    assert (missing.returncode, "trian.py: no such file" in missing.stderr) == (2, True)
    (user.folder / ".dockerignore").write_text("*\n")
    empty = user.deploy()
    assert (empty.returncode, "nothing to send" in empty.stderr) == (2, True)
    (user.folder / ".dockerignore").write_text("train.py\n")
    (user.folder / "other.py").write_text("")
    ignored = user.deploy()
    assert (ignored.returncode, "train.py: Muster does not send it" in ignored.stderr) == (2, True)
    (user.folder / ".dockerignore").unlink()
    with (user.folder / "data.bin").open("wb") as file:
        file.truncate(300 << 20)
    huge = user.deploy()
    assert huge.returncode == 1
    assert "data.bin (315 MB)" in huge.stderr
    assert user.is_clean()


def test_a_secret_in_the_command_is_refused_and_not_repeated(user):
    user.environment["HF_TOKEN"] = "sesame-4711"
    done = user.deploy(script="train.py --token sesame-4711")
    assert done.returncode == 2
    assert "--secret HF_TOKEN" in done.stderr
    assert "sesame" not in done.stderr + done.stdout
    assert user.is_clean()


def test_the_holder_of_a_lock_is_named_even_if_the_port_is_taken_too(user, monkeypatch):
    """Of two deploys at the same moment, the second must be told about the first, not about what the first started."""
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(user.rack.ssh_config))
    first = user.hosts[0]
    with (
        open_all(hosts_of_flag(",".join(user.hosts))) as opened,
        dropped(user.rack, first),
        lock.lock_hosts(opened.all().values(), "the-first"),
    ):
        done = user.deploy()
    assert done.returncode == 1
    assert f"{first}: locked by" in done.stderr
    assert "run the-first" in done.stderr
    assert "preflight" not in done.stderr
    assert user.is_clean()
