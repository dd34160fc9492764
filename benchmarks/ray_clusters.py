"""Ray clusters that are brought up, used on every host, and ended: `muster ray`, beside Ray's own launcher.

    python -m benchmarks.ray_clusters [--count 20] [--up NAME] [--rival HOST,HOST,...]

Clusters have 2, 3 and 4 hosts of a rack by turns (`--up`: one with the image that is up), and the example's driver.
A cluster counts where its driver used every host and ended well, and no process or container of it is left.

The rival is `ray up` with its provider for machines that are there. It counts as up once `ray status` on its head has
all hosts. It needs Ray and rsync on the hosts and here, which `muster ray` does not: `--rival` names hosts with both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Row, result, say, spread, stop_like_ctrl_c, table
from benchmarks.growth import BASE, FAB, rack
from benchmarks.venv import HOME
from lab.rack import Rack

MOST, UP_S, ROUNDS, RIVALS = 4, 120.0, "3", 3
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
    left = [host for host in hosts if rack.root(host, "sh", "-c", _LEFT) != "0" or rack.on(host, "docker ps -aq")]
    return seconds, f"left on {left}" if left else ""


def rival(rack: Rack, hosts: Sequence[str], folder: Path) -> tuple[float, int]:
    """`ray up`: seconds until it has all hosts or is given up, and how many hosts it has then."""
    addresses = [rack.address(host) for host in hosts]
    limits = "--object-store-memory=100000000 --num-cpus=1"
    config = {
        "cluster_name": "onprem",
        "provider": {"type": "local", "head_ip": addresses[0], "worker_ips": addresses[1:]},
        "auth": {"ssh_user": "muster", "ssh_private_key": str(rack.ssh_config.with_name("id_ed25519"))},
        "min_workers": len(hosts) - 1,
        "max_workers": len(hosts) - 1,
        "head_start_ray_commands": [
            "ray stop", f"ray start --head --port=6379 {limits} --autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": ["ray stop", f"ray start --address=$RAY_HEAD_IP:6379 {limits}"],
    }  # fmt: skip
    path = folder / "ray.yaml"
    path.write_text(json.dumps(config))
    began, joined = time.monotonic(), 0
    _ray("up", "--yes", "--no-config-cache", str(path))
    while joined < len(hosts) and time.monotonic() - began < UP_S:
        time.sleep(1)
        shown = rack.ssh(hosts[0], "ray status", timeout=60).stdout
        alive = shown.partition("Active:")[2].partition("Pending:")[0]  # those that are idle included
        joined = sum(int(count) for count in re.findall(r"^ (\d+) \S+$", alive, re.MULTILINE))
    seconds = time.monotonic() - began
    _ray("down", "--yes", str(path))
    return seconds, joined


def _ray(*words: str) -> None:
    done = subprocess.run(["ray", *words], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        say(f"ray {words[0]}: code {done.returncode}: {done.stderr[-500:]}")


def main() -> None:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--count", type=int, default=20)
    command.add_argument("--up", default="", help="a rack of 4 that is up, and has the image")
    command.add_argument("--rival", default="", help="hosts that have Ray and rsync")
    options = command.parse_args()
    stop_like_ctrl_c()
    took, wrong, of_rival = list[float](), list[str](), list[tuple[float, int]]()
    with rack(options.up, MOST) as field, tempfile.TemporaryDirectory() as scratch:
        up, folder = Rack(field.name, len(field.names)), Path(scratch)
        shutil.copytree(HOME / "examples/ray", folder, dirs_exist_ok=True)
        rivals = options.rival.split(",") if options.rival else []
        for number in range(options.count):
            seconds, why = cluster(up, field.names[: 2 + number % 3], folder)
            say(f"{number + 1}: {seconds:.1f} s {why}")
            took.append(seconds)
            wrong += [why] if why else []
            if rivals and number < RIVALS:
                of_rival.append(rival(up, rivals, folder))
                say(f"ray up: {of_rival[-1]}")
    well, name = (
        options.count - len(wrong),
        f"{options.count} Ray clusters on 2 to 4 hosts: up, used, ended, nothing left",
    )
    beside = ", ".join(f"{joined} of {len(rivals)} hosts after {seconds:.0f} s" for seconds, joined in of_rival)
    rows = [
        Row(name, f"{well} of {options.count}", f"ray up: {beside}" if beside else "", "", f"{options.count}",
            not wrong),
        Row("... seconds each, packages present", f"{spread(took, '.1f')} s"),
    ]  # fmt: skip
    print(table(result(rows, wrong)))


if __name__ == "__main__":
    main()
