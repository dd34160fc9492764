"""Faults of SSH, Docker engines and images on a rack: each breaks a host for a while, and says what is to be named.

    @trouble("docker-down")
    def engine_is_stopped(ground, host):
        ground.root(host, "pkill", "-x", "dockerd")
        yield
        ...mend it

What it yields are words for `fab preflight`, or nothing. `on`: which host is broken, as in tests/lab/fault.py. Without
a cause nothing may be alarmed: the run would start.
"""

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# Under a name that fab push did not give it: the user's own.
BASE, IMAGE, KEPT, PORT = "muster-trainer:cpu", "lab/trainer:1", "lab/kept:1", 29500
TROUBLES = {}


@dataclass(frozen=True)
class Trouble:
    """One kind of fault. also: causes that say the same of what was done."""

    name: str
    cause: str
    inject: Callable
    on: str = "any"
    also: tuple[str, ...] = ()

    @contextmanager
    def on_host(self, ground, host):
        """The host broken; mended whatever happens meanwhile."""
        steps = self.inject(ground, host)
        words = next(steps)
        try:
            yield words or ()
        finally:
            next(steps, None)

    @property
    def words(self):
        """Its name as people say it."""
        return self.name.replace("_", " ")

    def place(self, count):
        """Which host is broken: another one from fault to fault."""
        return 0 if self.on in ("first", "all") else zlib.crc32(f"{self.name}{count}".encode()) % count


def trouble(cause, **how):
    """Puts the function below, which breaks, yields and mends, into TROUBLES."""

    def add(inject):
        TROUBLES[inject.__name__] = Trouble(inject.__name__, cause, inject, **how)
        return inject

    return add


class Ground:
    """Hosts of a rack, and SSH settings of our own for them. `rack` has `ssh_config` and `container(host)`."""

    def __init__(self, rack, hosts, folder):
        self.rack, self.hosts, self.folder = rack, hosts, Path(folder)
        self.config, self.known = self.folder / "ssh_config", self.folder / "known_hosts"
        text = rack.ssh_config.read_text()
        self.known.write_text(rack.ssh_config.with_name("known_hosts").read_text())
        self.config.write_text(re.sub(r"UserKnownHostsFile .*", f'UserKnownHostsFile "{self.known}"', text))

    def root(self, host, *argv):
        """Run a command on a host as root, past SSH."""
        done = subprocess.run(
            ["docker", "exec", self.rack.container(host), *argv], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{host}: {' '.join(argv)}: {done.stderr}"
        return done.stdout.strip()

    def start(self, host, *argv):
        """Start a daemon there."""
        subprocess.run(["docker", "exec", "--detach", self.rack.container(host), *argv], check=True)

    def setting(self, host, name, value):
        """One SSH setting of a host."""
        text = re.sub(rf"(?m)(^Host {host}$(?:\n    .*)*?\n)    {name} .*\n", r"\1", self.config.read_text())
        self.config.write_text(text.replace(f"Host {host}\n", f"Host {host}\n    {name} {value}\n"))

    def address(self, host):
        """Its IP address."""
        return re.search(rf"Host {host}\n(?:    .*\n)*?    HostName (\S+)", self.rack.ssh_config.read_text())[1]

    def preflight(self, *words):
        """`fab preflight --json --quick` on all of them: its exit code and the verdict."""
        line = [FAB, "preflight", "--hosts", ",".join(self.hosts), "--json", "--quick", "--image", IMAGE, *words]
        env = {**os.environ, "MUSTER_SSH_CONFIG": str(self.config)}
        done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=150)
        said = json.loads(done.stdout or "{}")
        nothing = {"cause": f"no verdict: {done.stderr[-300:]}", "hosts": [], "findings": [], "examined": []}
        return done.returncode, said if "findings" in said else nothing


def is_right(trouble, verdict):
    """Whether the first cause is the right one; without a fault: whether there is no alarm."""
    if not trouble.cause:
        return verdict["cause"] == ""
    return verdict["cause"] in (trouble.cause, *trouble.also)


def names_where(trouble, verdict, hosts):
    """Whether it names the hosts to repair. Of two that differ nobody can tell which is wrong: both are right then."""
    named = {host for found in verdict["findings"] if found["cause"] == verdict["cause"] for host in found["hosts"]}
    both = len(verdict["examined"]) == 2 and verdict["cause"] in ("image-differs",) and named == {*verdict["examined"]}
    return not trouble.cause or named == set(hosts) or both


@trouble("ssh-refused")
def sshd_is_down(ground, host):
    ground.root(host, "pkill", "-x", "sshd")
    yield
    ground.start(host, "/usr/sbin/sshd", "-D", "-e")


@trouble("ssh-timeout")
def ssh_port_is_dropped(ground, host):
    rule = ("INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
    ground.root(host, "iptables", "-I", *rule)
    yield
    ground.root(host, "iptables", "-D", *rule)


@trouble("ssh-refused")
def ssh_port_is_another(ground, host):
    ground.setting(host, "Port", 2222)
    yield


@trouble("ssh-name")
def name_does_not_resolve(ground, host):
    ground.setting(host, "HostName", "no-such-host.invalid")
    yield


@trouble("ssh-timeout")
def address_of_nobody(ground, host):
    ground.setting(host, "HostName", ground.address(host).rpartition(".")[0] + ".250")
    yield


@trouble("ssh-silent")
def sshd_stands_still(ground, host):
    ground.root(host, "pkill", "-STOP", "-x", "sshd")
    yield
    ground.root(host, "pkill", "-CONT", "-x", "sshd")


@trouble("ssh-host-key-changed")
def host_key_has_changed(ground, host):
    other = next(name for name in ground.hosts if name != host)
    lines = [line.split(maxsplit=1) for line in ground.known.read_text().splitlines()]
    keys = [key for names, key in lines if names.startswith(f"{other},")]
    kept = [f"{names} {key}" for names, key in lines if not names.startswith(f"{host},")]
    ground.known.write_text("\n".join([*kept, *(f"{host},{ground.address(host)} {key}" for key in keys), ""]))
    yield


@trouble("ssh-host-key-unknown")
def host_key_is_not_known(ground, host):
    lines = ground.known.read_text().splitlines(keepends=True)
    ground.known.write_text("".join(line for line in lines if not line.startswith(f"{host},")))
    yield


@trouble("ssh-key")
def key_is_not_accepted(ground, host):
    ground.root(host, "mv", "/home/muster/.ssh/authorized_keys", "/home/muster/.ssh/kept")
    yield
    ground.root(host, "mv", "/home/muster/.ssh/kept", "/home/muster/.ssh/authorized_keys")


@trouble("ssh-key")
def user_is_not_there(ground, host):
    ground.setting(host, "User", "alice")
    yield


@trouble("ssh-shell")
def user_has_no_shell(ground, host):
    ground.root(host, "usermod", "-s", "/usr/sbin/nologin", "muster")
    yield
    ground.root(host, "usermod", "-s", "/bin/bash", "muster")


@trouble("docker-down")
def engine_is_stopped(ground, host):
    ground.root(host, "sh", "-c", "pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done")
    yield
    ground.start(host, "dockerd")
    until(lambda: _answers(ground, host), "the engine")


def _answers(ground, host):
    line = ["docker", "exec", ground.rack.container(host), "docker", "version"]
    return subprocess.run(line, capture_output=True, timeout=20).returncode == 0


@trouble("docker-silent")
def engine_stands_still(ground, host):
    ground.root(host, "pkill", "-STOP", "-x", "dockerd")
    yield
    ground.root(host, "pkill", "-CONT", "-x", "dockerd")


@trouble("docker-permission")
def user_is_not_in_the_docker_group(ground, host):
    ground.root(host, "gpasswd", "-d", "muster", "docker")
    yield
    ground.root(host, "gpasswd", "-a", "muster", "docker")


@trouble("docker-missing")
def docker_is_not_installed(ground, host):
    ground.root(host, "mv", "/usr/bin/docker", "/usr/bin/docker.kept")
    yield
    ground.root(host, "mv", "/usr/bin/docker.kept", "/usr/bin/docker")


@trouble("docker-down")
def engine_is_looked_for_elsewhere(ground, host):
    with _first_lines(ground, host, "export DOCKER_HOST=unix:///run/none.sock"):
        yield


@trouble("disk-full")
def dockers_folder_is_full(ground, host):
    ground.root(host, "mount", "-t", "tmpfs", "-o", "size=4k", "none", "/var/lib/docker/containers")
    yield
    ground.root(host, "umount", "/var/lib/docker/containers")


@trouble("home-readonly")
def home_is_read_only(ground, host):
    ground.root(host, "sh", "-c", "mount --bind /home/muster /home/muster; mount -o remount,bind,ro /home/muster")
    yield
    ground.root(host, "umount", "/home/muster")


@trouble("image-differs")
def another_image_under_the_name(ground, host):
    ground.root(host, "docker", "tag", IMAGE, KEPT)
    ground.root(host, "docker", "run", "--name", "muster-made", "--entrypoint", "touch", IMAGE, "/tmp/other")
    ground.root(host, "docker", "commit", "muster-made", IMAGE)
    yield
    ground.root(host, "sh", "-c", f"docker rm muster-made; docker tag {KEPT} {IMAGE}; docker rmi {KEPT}")


@trouble("image-without-python", on="all")
def image_has_no_python(ground, host):
    for one in ground.hosts:
        ground.root(one, "docker", "tag", IMAGE, KEPT)
        ground.root(
            one, "sh", "-c", f"mkdir -p /tmp/empty; tar -c --mtime=@0 -C /tmp/empty . | docker import - {IMAGE}"
        )
    yield
    for one in ground.hosts:
        ground.root(one, "sh", "-c", f"docker rmi {IMAGE}; docker tag {KEPT} {IMAGE}; docker rmi {KEPT}")


@trouble("")
def image_is_not_there_yet(ground, host):
    ground.root(host, "sh", "-c", f"docker tag {IMAGE} {KEPT}; docker rmi {IMAGE}")
    yield
    ground.root(host, "sh", "-c", f"docker tag {KEPT} {IMAGE}; docker rmi {KEPT}")


@trouble("no-python")
def neither_image_nor_python(ground, host):
    ground.root(host, "mv", "/usr/bin/python3", "/usr/bin/python3.kept")
    ground.root(host, "sh", "-c", f"docker tag {IMAGE} {KEPT}; docker rmi {IMAGE}")
    yield
    ground.root(host, "mv", "/usr/bin/python3.kept", "/usr/bin/python3")
    ground.root(host, "sh", "-c", f"docker tag {KEPT} {IMAGE}; docker rmi {KEPT}")


@trouble("gpu-runtime")
def gpus_without_their_container_toolkit(ground, host):
    path = "/usr/local/bin/nvidia-smi"
    listed = "#!/bin/sh\necho '0, NVIDIA A100-SXM4-80GB, 81920 MiB'"
    ground.root(host, "sh", "-c", 'echo "$1" >"$0"; chmod 755 "$0"', path, listed)
    yield
    ground.root(host, "rm", path)


@trouble("port-busy", on="first")
def another_run_holds_the_port(ground, host):
    listen = f"import socket, time; s = socket.create_server(('', {PORT})); time.sleep(300)"
    ground.start(host, "python3", "-c", listen)
    until(lambda: f":{PORT:04X}" in ground.root(host, "cat", "/proc/net/tcp"), "the listener")
    yield "--style", "torchrun", "--endpoint", ground.address(host), "--port", str(PORT)
    ground.root(host, "pkill", "-f", "socket.create_server")


@trouble("name-loopback", on="first")
def debians_own_name(ground, host):
    before = ground.root(host, "cat", "/etc/hosts")
    name = ground.root(host, "hostname")
    ground.root(host, "sh", "-c", f"echo '127.0.0.1 localhost\n127.0.1.1 {name}' >/etc/hosts")
    yield "--style", "torchrun", "--endpoint", ground.address(host), "--port", str(PORT)
    ground.root(host, "sh", "-c", 'echo "$1" >/etc/hosts', "hosts", before)


@trouble("shm-small", on="all")
def little_shared_memory_asked_for(ground, host):
    path = ground.folder / "cluster.toml"
    hosts = "".join(f'[[hosts]]\nname = "{name}"\n' for name in ground.hosts)
    path.write_text(f'[job]\nshm_size = "1m"\n{hosts}')
    yield "--cluster", str(path)


@trouble("rendezvous-dropped", on="first")
def rendezvous_port_is_dropped(ground, host):
    rule = ("INPUT", "-p", "tcp", "--dport", str(PORT), "-j", "DROP")
    ground.root(host, "iptables", "-I", *rule)
    yield
    ground.root(host, "iptables", "-D", *rule)


@trouble("data-ports-rejected", on="first")
def data_ports_are_rejected(ground, host):
    rule = ("INPUT", "-p", "tcp", "--syn", "--dport", "30000:65535", "-j", "REJECT")
    ground.root(host, "iptables", "-I", *rule)
    yield
    ground.root(host, "iptables", "-D", *rule)


@contextmanager
def _first_lines(ground, host, text):
    """Lines that every shell of the user's reads first."""
    ground.root(host, "sh", "-c", 'cd /home/muster; cp .bashrc .kept; (echo "$1"; cat .kept) >.bashrc', "sh", text)
    yield
    ground.root(host, "mv", "/home/muster/.kept", "/home/muster/.bashrc")


@trouble("")
def shell_is_talkative(ground, host):
    with _first_lines(ground, host, "echo welcome to this machine; echo 'quota: 93 %' >&2"):
        yield


@trouble("")
def temporary_folder_is_noexec(ground, host):
    ground.root(host, "mount", "-t", "tmpfs", "-o", "noexec,mode=1777", "none", "/tmp")
    yield
    ground.root(host, "umount", "/tmp")


@trouble("")
def dockers_settings_of_the_user_are_broken(ground, host):
    ground.root(host, "sh", "-c", "mkdir -p /home/muster/.docker; echo '{' >/home/muster/.docker/config.json")
    yield
    ground.root(host, "rm", "-r", "/home/muster/.docker")


@trouble("ssh-key", also=("ssh", "ssh-shell"))
def account_has_expired(ground, host):
    ground.root(host, "chage", "-E", "0", "muster")
    yield
    ground.root(host, "chage", "-E", "-1", "muster")


@trouble("ssh-shell")
def only_one_command_is_allowed(ground, host):
    path = "/home/muster/.ssh/authorized_keys"
    ground.root(host, "sed", "-i", 's|^|command="/bin/false" |', path)
    yield
    ground.root(host, "sed", "-i", 's|^command="/bin/false" ||', path)


@trouble("ssh-shell")
def shell_leaves_at_once(ground, host):
    with _first_lines(ground, host, "exit 0"):
        yield


@trouble("")
def shell_is_slow(ground, host):
    with _first_lines(ground, host, "sleep 2"):
        yield


@trouble("docker-silent")
def engine_starts_nothing(ground, host):
    ground.root(host, "pkill", "-STOP", "-x", "containerd")
    yield
    ground.root(host, "pkill", "-CONT", "-x", "containerd")


@trouble("docker-refused")
def engine_has_no_runtime(ground, host):
    where = ground.root(host, "which", "runc")
    ground.root(host, "mv", where, f"{where}.kept")
    yield
    ground.root(host, "mv", f"{where}.kept", where)


@trouble("docker-down")
def docker_context_is_unknown(ground, host):
    with _first_lines(ground, host, "export DOCKER_CONTEXT=cloud"):
        yield


@trouble("disk-full")
def folder_of_the_runs_is_full(ground, host):
    folder = "/home/muster/.muster"
    fill = f"mkdir -p {folder}; mount -t tmpfs -o size=64k,mode=0777 none {folder}; cat /dev/zero >{folder}/full; true"
    ground.root(host, "sh", "-c", fill)
    yield
    ground.root(host, "umount", folder)


@trouble("")
def nothing_is_wrong(ground, host):
    yield
