"""The control side of the tests on the rack: fab as a user types it, and what a run left on which host."""

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
    """Arguments of a deploy that starts Muster's trainer and ends only when it is stopped."""
    return (*SLOW, "--args", f"--recipe slow.py --steps 1000000 {more}".rstrip())


def end_all(processes):
    """Kill the processes that are still running: a deploy that a failed test left holds the locks of its hosts."""
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
        """The JSON objects that a task prints."""
        return [json.loads(line) for line in self.fab(task, "--json", *words, hosts=hosts).stdout.splitlines()]

    def background(self, line, **more):
        """Start a command of the control side in the background; it ends with the test at the latest."""
        self._background.append(subprocess.Popen(line, **{"cwd": HOME, "env": self.environment, **more}))
        return self._background[-1]

    def start(self, *words):
        """Start `muster deploy` in the background and discard its messages."""
        return self.background(self.line("deploy", "--run", self.run, "--image", BASE, *words), **QUIET)

    def deploy(self, *words, hosts=None):
        return self.fab("deploy", "--run", self.run, "--image", BASE, *words, hosts=hosts)

    def containers(self):
        """The containers of the test's run on its hosts, running or not."""
        command = ("docker", "ps", "--all", "--quiet", "--filter", f"label=muster.run={self.run}")
        return [line for host in self.hosts for line in self.rack.on(host, *command).split()]

    def traces(self):
        """What the test's run left on its hosts besides its run folder: containers, variables, locks, followers."""
        files = f"ls -d ~/.muster/runs/{self.run}=* ~/.muster/lock-*[!p] 2>/dev/null"
        look = f"{files}; pgrep -f '[m]uster-{self.run}'; true"
        return self.containers() + [line for host in self.hosts for line in self.rack.on(host, look).split()]

    def step(self):
        """The last step of rank 0 that has been reported to this machine; 0 if none has."""
        return max((event["step"] for event in waiting.events(self.dir, 0, "step")), default=0)

    def outcome(self):
        return json.loads((self.dir / "outcome.json").read_text())

    def clean(self):
        """Remove all of the run, on this machine and on its hosts."""
        end_all(self._background)
        self.fab("down", "--run", self.run)
        for host in self.hosts:
            self.rack.on(host, f"rm -rf ~/.muster/runs/{self.run}")
        shutil.rmtree(self.dir, ignore_errors=True)
