"""Ray clusters that are brought up, used on every host, and ended: `muster ray`, beside Ray's own launcher.

    python -m benchmarks.ray_clusters [--count 20] [--up NAME] [--rivals 3]

Clusters have 2, 3 and 4 hosts of a rack by turns (`--up`: one with the image that is up), and the example's driver.
A cluster counts where its driver used every host and ended well, and no process or container of it is left.

The rival is `ray up` with its provider for machines that are there, on three of the hosts, typed on the fourth. It
counts as up once `ray status` on its head has all hosts. It needs Ray and rsync on each, which they are given first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Row, result, say, spread, stop_like_ctrl_c, table
from benchmarks.growth import BASE, rack
from benchmarks.venv import FAB, HOME
from lab.rack import Rack

MOST, UP_S, ROUNDS = 4, 120.0, "3"
_LEFT = "pgrep -c 'raylet|gcs_server' || true"


def cluster(rack: Rack, hosts: Sequence[str], folder: Path) -> tuple[float, str]:
    """Bring one up, use it, end it: seconds, and what was wrong."""
    began = time.monotonic()
    line = [str(FAB), "--search-root", str(HOME), "ray", "--hosts", ",".join(hosts), "--image", BASE]
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    done = subprocess.run([*line, "train_rl.py", "--rounds", ROUNDS], cwd=folder, env=environment, text=True,
                          capture_output=True, timeout=600)  # fmt: skip
    seconds = time.monotonic() - began
    used = next((row.split("workers on ")[1].split() for row in done.stdout.splitlines() if "workers on" in row), [])
    if done.returncode or len(set(used)) != len(hosts):
        return seconds, f"code {done.returncode}, used {used}: {done.stderr.strip().splitlines()[-2:]}"
    left = [host for host in hosts if rack.shell(host, _LEFT) != "0" or rack.on(host, "docker ps -aq")]
    return seconds, f"left on {left}" if left else ""


def prepare(rack: Rack, scratch: Path) -> None:
    """Give each host what `ray up` needs: rsync, the example's Ray for the host's Python, and on the last one a key."""
    if rack.ssh(rack.hosts[-1], "test -s key").returncode == 0:
        return  # the rack was up, and has seen this
    version = rack.on(rack.hosts[0], """python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'""")
    packages, program = scratch / "packages", scratch / "ray"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--python-version", version]
    wanted = ["--target", str(packages), "--requirement", str(HOME / "examples/ray/requirements.txt")]
    subprocess.run([*pip, *wanted], check=True)
    program.write_text("#!/usr/bin/python3\nfrom ray.scripts.scripts import main\n\nmain()\n")
    program.chmod(0o755)
    for host in rack.hosts:
        rack.shell(host, "apt-get -qq update && apt-get -qq install -y rsync 2>&1", timeout=300)
        for source, target in ((f"{packages}/.", f"lib/python{version}/dist-packages"), (program, "bin/ray")):
            subprocess.run(["docker", "cp", "-q", source, f"{rack.container(host)}:/usr/local/{target}"], check=True)
    key = rack.ssh_config.with_name("id_ed25519").read_text()
    rack.ssh(rack.hosts[-1], "umask 77; cat >key", input=key).check_returncode()


def rival(rack: Rack) -> tuple[float, int]:
    """`ray up`: seconds until it has three hosts or is given up, and how many it has then."""
    *hosts, control = rack.hosts
    addresses = [rack.address(host) for host in hosts]
    limits = "--object-store-memory=100000000 --num-cpus=1"
    config = {
        "cluster_name": "onprem",
        "provider": {"type": "local", "head_ip": addresses[0], "worker_ips": addresses[1:]},
        "auth": {"ssh_user": "muster", "ssh_private_key": "~/key"},
        "min_workers": len(hosts) - 1,
        "max_workers": len(hosts) - 1,
        "head_start_ray_commands": [
            "ray stop", f"ray start --head --port=6379 {limits} --autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": ["ray stop", f"ray start --address=$RAY_HEAD_IP:6379 {limits}"],
    }  # fmt: skip
    rack.ssh(control, "cat >ray.yaml", input=json.dumps(config)).check_returncode()
    began, joined = time.monotonic(), 0
    _type(rack, control, "ray up --yes --no-config-cache ray.yaml")
    while joined < len(hosts) and time.monotonic() - began < UP_S:
        time.sleep(1)
        shown = rack.ssh(hosts[0], "ray status", timeout=60).stdout
        alive = shown.partition("Active:")[2].partition("Pending:")[0]  # those that are idle included
        joined = sum(int(count) for count in re.findall(r"^ (\d+) \S+$", alive, re.MULTILINE))
    seconds = time.monotonic() - began
    _type(rack, control, "ray down --yes ray.yaml")
    for host in hosts:  # what it has left would be in the way of the next
        _type(rack, host, "ray stop --force")
    return seconds, joined


def _type(rack: Rack, host: str, command: str) -> None:
    done = rack.ssh(host, command, timeout=600)
    if done.returncode:
        say(f"{command}: code {done.returncode}: {done.stderr[-500:]}")


def main() -> None:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--count", type=int, default=20)
    command.add_argument("--up", default="", help="a rack of 4 that is up, and has the image")
    command.add_argument("--rivals", type=int, default=3, help="how many clusters of Ray's own launcher")
    options = command.parse_args()
    stop_like_ctrl_c()
    took, wrong, of_rival = list[float](), list[str](), list[tuple[float, int]]()
    with rack(options.up, MOST) as field, tempfile.TemporaryDirectory() as scratch:
        up, folder = field.rack, Path(scratch)
        shutil.copytree(HOME / "examples/ray", folder, dirs_exist_ok=True)
        for number in range(options.count):
            seconds, why = cluster(up, up.hosts[: 2 + number % 3], folder)
            say(f"{number + 1}: {seconds:.1f} s {why}")
            took.append(seconds)
            wrong += [why] if why else []
        if options.rivals:
            prepare(up, folder)
        for _ in range(options.rivals):
            of_rival.append(rival(up))
            say(f"ray up: {of_rival[-1]}")
    well, name = (
        options.count - len(wrong),
        f"{options.count} Ray clusters on 2 to 4 hosts: up, used, ended, nothing left",
    )
    beside = ", ".join(f"{joined} of {MOST - 1} hosts after {seconds:.0f} s" for seconds, joined in of_rival)
    rows = [
        Row(name, f"{well} of {options.count}", f"ray up: {beside}" if beside else "", "", f"{options.count}",
            not wrong),
        Row("... seconds each, packages present", f"{spread(took, '.1f')} s"),
    ]  # fmt: skip
    print(table(result(rows, wrong)))


if __name__ == "__main__":
    main()
