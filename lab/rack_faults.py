"""Faults of SSH, Docker engines and images on a rack: each breaks a host for a while, and defines what must be named.

    @trouble("docker-down")
    def engine_is_stopped(cluster, host):
        cluster.root(host, "pkill", "-x", "dockerd")
        yield
        ...mend it

If two shell lines can make and mend a fault on a host, it is a row of lab/machines/. The faults here need more:
settings of the control side, several hosts, or their own arguments. A fault yields arguments for `muster preflight`, or
nothing. `on`: which host is broken, as in lab/fault.py. Without a cause there must be no alarm: the run would start.
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

from lab.waiting import until

HOME = Path(__file__).resolve().parents[1]
FAB = Path(sys.executable).with_name("fab")
# A name that fab push did not give: the user's own image.
BASE, IMAGE, SAVED, PORT = "muster-trainer:cpu", "lab/trainer:1", "lab/saved:1", 29500
TROUBLES = {}


@dataclass(frozen=True)
class Trouble:
    """One kind of fault. also: causes that describe the fault correctly, too."""

    name: str
    cause: str
    inject: Callable
    on: str = "any"
    also: tuple[str, ...] = ()

    @contextmanager
    def on_host(self, cluster, host):
        """Break the host; it is mended at the end of the block, whatever happens meanwhile."""
        steps = self.inject(cluster, host)
        words = next(steps)
        try:
            yield words or ()
        finally:
            next(steps, None)

    @property
    def words(self):
        """Its name in words."""
        return self.name.replace("_", " ")

    def place(self, count):
        """The index of the broken host: it differs from fault to fault."""
        return 0 if self.on in ("first", "all") else zlib.crc32(f"{self.name}{count}".encode()) % count


def trouble(cause, **how):
    """Put the decorated function, which breaks, yields and mends, into TROUBLES."""

    def add(inject):
        TROUBLES[inject.__name__] = Trouble(inject.__name__, cause, inject, **how)
        return inject

    return add


class FaultyHosts:
    """Hosts of a rack, with separate SSH settings. `rack` has `ssh_config` and `container(host)`."""

    def __init__(self, rack, hosts, folder):
        self.rack, self.hosts, self.folder = rack, hosts, Path(folder)
        self.config, self.known = self.folder / "ssh_config", self.folder / "known_hosts"
        text = rack.ssh_config.read_text()
        self.known.write_text(rack.ssh_config.with_name("known_hosts").read_text())
        self.config.write_text(re.sub(r"UserKnownHostsFile .*", f'UserKnownHostsFile "{self.known}"', text))

    def root(self, host, *argv):
        """Run a command on a host as root, without SSH."""
        return self.rack.root(host, *argv, timeout=60)

    def start(self, host, *argv):
        """Start a daemon on a host."""
        subprocess.run(["docker", "exec", "--detach", self.rack.container(host), *argv], check=True)

    def setting(self, host, name, value):
        """Change one SSH setting for a host."""
        text = re.sub(rf"(?m)(^Host {host}$(?:\n    .*)*?\n)    {name} .*\n", r"\1", self.config.read_text())
        self.config.write_text(text.replace(f"Host {host}\n", f"Host {host}\n    {name} {value}\n"))

    def address(self, host):
        """A host's IP address."""
        return self.rack.address(host)

    def preflight(self, *words):
        """Run `fab preflight --json --quick` on all hosts; returns its exit code and the verdict."""
        line = [FAB, "preflight", "--hosts", ",".join(self.hosts), "--json", "--quick", "--image", IMAGE, *words]
        env = {**os.environ, "MUSTER_SSH_CONFIG": str(self.config)}
        done = subprocess.run(line, cwd=HOME, env=env, capture_output=True, text=True, timeout=150)
        output = json.loads(done.stdout or "{}")
        nothing = {"cause": f"no verdict: {done.stderr[-300:]}", "hosts": [], "findings": [], "examined": []}
        return done.returncode, output if "findings" in output else nothing


def is_right(trouble, verdict):
    """Whether the first cause is the right one; if there is no fault, whether there is no alarm."""
    if not trouble.cause:
        return verdict["cause"] == ""
    return verdict["cause"] in (trouble.cause, *trouble.also)


def names_where(trouble, verdict, hosts):
    """Whether the verdict names exactly the hosts to repair."""
    named = {
        host for finding in verdict["findings"] if finding["cause"] == verdict["cause"] for host in finding["hosts"]
    }
    return not trouble.cause or named == set(hosts)


@trouble("docker-permission")
def user_is_not_in_the_docker_group(cluster, host):
    cluster.root(host, "gpasswd", "-d", "muster", "docker")
    yield
    cluster.root(host, "gpasswd", "-a", "muster", "docker")


@trouble("docker-missing")
def docker_is_not_installed(cluster, host):
    cluster.root(host, "mv", "/usr/bin/docker", "/usr/bin/docker.kept")
    yield
    cluster.root(host, "mv", "/usr/bin/docker.kept", "/usr/bin/docker")


@trouble("ssh-refused")
def sshd_is_down(cluster, host):
    cluster.root(host, "pkill", "-x", "sshd")
    yield
    cluster.start(host, "/usr/sbin/sshd", "-D", "-e")


@trouble("ssh-refused")
def ssh_port_is_another(cluster, host):
    cluster.setting(host, "Port", 2222)
    yield


@trouble("ssh-name")
def name_does_not_resolve(cluster, host):
    cluster.setting(host, "HostName", "no-such-host.invalid")
    yield


@trouble("ssh-timeout")
def address_of_nobody(cluster, host):
    cluster.setting(host, "HostName", cluster.address(host).rpartition(".")[0] + ".250")
    yield


@trouble("ssh-host-key-changed")
def host_key_has_changed(cluster, host):
    other = next(name for name in cluster.hosts if name != host)
    lines = [line.split(maxsplit=1) for line in cluster.known.read_text().splitlines()]
    keys = [key for names, key in lines if names.startswith(f"{other},")]
    others = [f"{names} {key}" for names, key in lines if not names.startswith(f"{host},")]
    cluster.known.write_text("\n".join([*others, *(f"{host},{cluster.address(host)} {key}" for key in keys), ""]))
    yield


@trouble("ssh-host-key-unknown")
def host_key_is_not_known(cluster, host):
    lines = cluster.known.read_text().splitlines(keepends=True)
    cluster.known.write_text("".join(line for line in lines if not line.startswith(f"{host},")))
    yield


@trouble("ssh-key")
def user_is_not_there(cluster, host):
    cluster.setting(host, "User", "alice")
    yield


@trouble("docker-down")
def engine_is_stopped(cluster, host):
    cluster.root(host, "sh", "-c", "pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done")
    yield
    cluster.start(host, "dockerd")
    until(lambda: cluster.rack.is_up(host), "the engine")


@trouble("image-without-python", on="all")
def image_has_no_python(cluster, host):
    for host in cluster.hosts:
        cluster.root(host, "docker", "tag", IMAGE, SAVED)
        cluster.root(
            host, "sh", "-c", f"mkdir -p /tmp/empty; tar -c --mtime=@0 -C /tmp/empty . | docker import - {IMAGE}"
        )
    yield
    for host in cluster.hosts:
        cluster.root(host, "sh", "-c", f"docker rmi {IMAGE}; docker tag {SAVED} {IMAGE}; docker rmi {SAVED}")


@trouble("port-busy", on="first")
def another_run_holds_the_port(cluster, host):
    listen = f"import socket, time; s = socket.create_server(('', {PORT})); time.sleep(300)"
    cluster.start(host, "python3", "-c", listen)
    until(lambda: f":{PORT:04X}" in cluster.root(host, "cat", "/proc/net/tcp"), "the listener")
    yield "--style", "torchrun", "--endpoint", cluster.address(host), "--port", str(PORT)
    cluster.root(host, "pkill", "-f", "socket.create_server")


@trouble("name-loopback", on="first")
def debians_own_name(cluster, host):
    before = cluster.root(host, "cat", "/etc/hosts")
    name = cluster.root(host, "hostname")
    cluster.root(host, "sh", "-c", f"echo '127.0.0.1 localhost\n127.0.1.1 {name}' >/etc/hosts")
    yield "--style", "torchrun", "--endpoint", cluster.address(host), "--port", str(PORT)
    cluster.root(host, "sh", "-c", 'echo "$1" >/etc/hosts', "hosts", before)


@trouble("shm-small", on="all")
def little_shared_memory_asked_for(cluster, host):
    path = cluster.folder / "cluster.toml"
    hosts = "".join(f'[[hosts]]\nname = "{name}"\n' for name in cluster.hosts)
    path.write_text(f'[job]\nshm_size = "1m"\n{hosts}')
    yield "--cluster", str(path), "--allow-folder"


@trouble("")
def nothing_is_wrong(cluster, host):
    yield
