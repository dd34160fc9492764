"""`muster bootstrap` on a plain Debian machine: a container with sshd and sudo, and without Docker at first."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab.waiting import until

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
BASE, IMAGE = "muster-base:bookworm", "muster-bare:test"
# What an engine inside a container needs, even where --privileged is not allowed (docs/develop/rack.md).
RIGHTS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *(word for kind in ("seccomp", "apparmor", "systempaths") for word in ("--security-opt", f"{kind}=unconfined")),
    *("--tmpfs", "/run:exec", "--mount", "type=volume,target=/var/lib/docker"),
)
# Docker's start script raises limits, which a container may not do: /etc/default/docker makes `ulimit` do nothing, and
# apt keeps that file.
RECIPE = f"""
FROM {BASE}
RUN apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        openssh-server sudo procps >/dev/null && rm -f /etc/ssh/ssh_host_* \
    && useradd --create-home --shell /bin/bash ops && echo "ops ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/ops \
    && echo 'ulimit() {{ :; }}' >/etc/default/docker \
    && echo 'Dpkg::Options {{ "--force-confold"; }};' >/etc/apt/apt.conf.d/keep
"""
BOOT = """
ssh-keygen -A >/dev/null; mkdir -p /run/sshd /home/ops/.ssh; echo "$KEY" >/home/ops/.ssh/authorized_keys
chown -R ops /home/ops/.ssh; mount -o remount,rw /sys
awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | xargs -rn1 mount -o remount,bind,rw
exec env -u KEY /usr/sbin/sshd -D -e
"""


def docker(*words, text=None):
    done = subprocess.run(["docker", *words], input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_image():
    """Build the image of a plain machine, and its base image if that is missing; return its name."""
    if subprocess.run(["docker", "image", "inspect", BASE], capture_output=True).returncode:
        subprocess.run(["images/debian-base.sh", BASE], cwd=HOME, check=True, timeout=300)
    docker("build", "--quiet", "--tag", IMAGE, "-", text=RECIPE)
    return IMAGE


@pytest.fixture(scope="module")
def bare_image(request):
    request.getfixturevalue("docker")
    return make_image()


@pytest.fixture
def bare(bare_image, tmp_path):
    """A machine called `bare`: its container, and an environment with MUSTER_SSH_CONFIG for it."""
    name = f"muster-bare-{uuid.uuid4().hex[:6]}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    key = (tmp_path / "key.pub").read_text()
    docker("run", "--detach", "--init", "--name", name, "--env", f"KEY={key}", *RIGHTS, bare_image, "sh", "-ec", BOOT)
    try:
        address = docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
        until(
            lambda: (
                "Server listening" in subprocess.run(["docker", "logs", name], capture_output=True, text=True).stderr
            ),
            "its sshd",
            30,
        )
        host_key = docker("exec", name, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").rsplit(" ", 1)[0]
        (tmp_path / "known").write_text(f"{address} {host_key}\n")
        config = tmp_path / "ssh_config"
        config.write_text(
            f"Host bare\n  HostName {address}\n  User ops\n  IdentityFile {tmp_path}/key\n"
            f"  UserKnownHostsFile {tmp_path}/known\n"
        )
        yield name, {**os.environ, "MUSTER_SSH_CONFIG": str(config)}
    finally:
        docker("rm", "--force", "--volumes", name)


def fab(environment, *words):
    line = [FAB, "bootstrap", "--hosts", "bare", *words]
    return subprocess.run(
        line, cwd=HOME, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400
    )


@pytest.mark.holds("bootstrap-asks")
def test_bootstrap_lets_a_plain_debian_host_run_containers_and_logs_each_command(bare):
    container, environment = bare
    foreseen = fab(environment, "--dry-run")
    assert foreseen.returncode == 0, foreseen.stderr
    assert "apt-get install -qy --no-install-recommends docker.io iptables" in foreseen.stdout
    unasked = fab(environment)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    nothing = subprocess.run(
        ["docker", "exec", container, "sh", "-c", "command -v dockerd; ls /home/ops/.muster"],
        capture_output=True,
        text=True,
    )
    assert not nothing.stdout

    done = fab(environment, "--yes")
    assert done.returncode == 0, done.stderr
    # As the login user in a new session, without sudo.
    assert docker("exec", container, "su", "ops", "-c", "docker info --format '{{.ServerVersion}}'")
    audit = docker("exec", container, "cat", "/home/ops/.muster/audit.log").splitlines()
    assert len(audit) == len(foreseen.stdout.splitlines())
    assert all("bootstrap: sudo -n " in line for line in audit)

    again = fab(environment, "--yes")
    assert again.returncode == 0, again.stderr
    assert again.stdout == "bare: has everything it needs\n"
