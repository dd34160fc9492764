"""The control side of the tests on the rack: fab as a user types it, and what a run left where."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from lab import waiting

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
BASE = "muster-trainer:cpu"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
SLOW = ("--folder", "tests/cluster/slow")


def forever(more=""):
    """Words of a deploy of Muster's trainer that only a stop ends."""
    return (*SLOW, "--args", f"--recipe slow.py --steps 1000000 {more}".rstrip())


def end_all(processes):
    """Kill those that still go on: a deploy that a failed test left holds the locks of its hosts."""
    for process in processes:
        process.kill()
        process.wait()


class Control:
    """The control side: fab on this machine, with the rack's SSH settings. `run` is the id of the test's own run."""

    def __init__(self, rack):
        self.rack, self.hosts = rack, rack.hosts[:2]
        self.run = f"test-{uuid.uuid4().hex[:8]}"
        self.dir = HOME / "runs" / self.run
        self.environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}
        self._background = []

    def line(self, task, *words, hosts=None):
        return [FAB, task, "--hosts", ",".join(hosts or self.hosts), *words]

    def fab(self, task, *words, hosts=None):
        line = self.line(task, *words, hosts=hosts)
        return subprocess.run(line, cwd=HOME, env=self.environment, capture_output=True, text=True, timeout=300)

    def rows(self, task, *words, hosts=None):
        """The JSON objects a task answers."""
        return [json.loads(line) for line in self.fab(task, "--json", *words, hosts=hosts).stdout.splitlines()]

    def background(self, line, **more):
        """A command of the control side that goes on beside the test, and ends with it at the latest."""
        self._background.append(subprocess.Popen(line, **{"cwd": HOME, "env": self.environment, **more}))
        return self._background[-1]

    def start(self, *words):
        """`muster deploy` in the background, its narration thrown away."""
        return self.background(self.line("deploy", "--run", self.run, "--image", BASE, *words), **QUIET)

    def deploy(self, *words, hosts=None):
        return self.fab("deploy", "--run", self.run, "--image", BASE, *words, hosts=hosts)

    def containers(self):
        """Containers of our run on its hosts, running or not."""
        command = ("docker", "ps", "--all", "--quiet", "--filter", f"label=muster.run={self.run}")
        return [line for host in self.hosts for line in self.rack.on(host, *command).split()]

    def traces(self):
        """What of our run is to be seen on its hosts beside its run folder: containers, variables, locks, followers."""
        files = f"ls -d ~/.muster/runs/{self.run}=* ~/.muster/lock-*[!p] 2>/dev/null"
        look = f"{files}; pgrep -f '[m]uster-{self.run}'; true"
        return self.containers() + [line for host in self.hosts for line in self.rack.on(host, look).split()]

    def step(self):
        """The step that rank 0 has reached, as far as it came home."""
        return max((event["step"] for event in waiting.events(self.dir, 0, "step")), default=0)

    def outcome(self):
        return json.loads((self.dir / "outcome.json").read_text())

    def clean(self):
        """Nothing of the run is left, here or there."""
        end_all(self._background)
        self.fab("down", "--run", self.run)
        for host in self.hosts:
            self.rack.on(host, f"rm -rf ~/.muster/runs/{self.run}")
        shutil.rmtree(self.dir, ignore_errors=True)
