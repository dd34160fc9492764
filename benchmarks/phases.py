"""The phases of a `fab deploy`, each held still on the hosts while something happens to the control side.

A rack's host gets a `docker` in front of its own: one kind of command waits there, before or after it is done, until it
is let go. What runs on the host is the real thing. benchmarks/leftovers.py and tests/cluster/test_phases.py use it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_HOLD = "/run/muster-hold"
_WRAPPER = f"""#!/bin/sh
real=/usr/bin/docker
[ -s {_HOLD}/what ] || exec $real "$@"
read -r when what <{_HOLD}/what
case "$*" in "$what"*) ;; *) exec $real "$@" ;; esac
[ "$when" = before ] || $real "$@"; code=$?
touch {_HOLD}/reached
while [ ! -e {_HOLD}/go ]; do sleep 0.1; done
[ "$when" = after ] || exec $real "$@"
exit $code
"""
_INSTALL = f"""
mkdir -p {_HOLD}; chmod 777 {_HOLD}; rm -f {_HOLD}/*
cat >/usr/local/bin/docker; chmod 755 /usr/local/bin/docker
"""
_REMOVE = f"touch {_HOLD}/go 2>/dev/null; rm -f /usr/local/bin/docker"
_CONNECTED = "awk '$2 ~ /:0016$/ && $4 == \"01\"' /proc/net/tcp /proc/net/tcp6 | grep -q ."
# Of what is here nothing may be left; the folder of a run that has started is no leftover, nor is the log of deeds.
_LOOK = """
/usr/bin/docker ps --all --format 'container {{.Names}} {{.Status}}'
/usr/bin/docker network ls --filter type=custom --format 'network {{.Name}}'
find /home/muster/.muster -name '*.starting' -o -name '*.part' -o -name 'lock-*' ! -name '*.step' | sed 's/^/file /'
# The folder of claims stays, without a claim in it.
claims='/var/tmp/muster-claims.????????????????'
find /tmp /var/tmp /dev/shm /var/lib/docker/tmp -mindepth 1 ! -path "$claims" 2>/dev/null | sed 's/^/file /'
pgrep --uid muster --list-full | grep -v sshd | sed 's/^/process /'
for run; do [ ! -e "/home/muster/.muster/runs/$run" ] || echo "file of $run, which never started"; done
"""


@dataclass(frozen=True)
class Phase:
    """A moment: `held` is how the docker command begins that waits, on hosts `on` (all when empty).

    `when` before or after it is done; `asked` says that `fab stop` leads there; `runs` that all nodes have started,
    `some` that some have.
    """

    name: str
    held: str = ""
    when: str = "before"
    on: tuple[int, ...] = ()
    asked: bool = False
    runs: bool = False
    some: bool = False


PHASES = (
    Phase("connecting"),
    Phase("looking at the hosts", "version"),
    Phase("trying the links", "run --rm"),
    Phase("looking at their images", 'info --format {"version'),
    Phase("sending", "load"),
    Phase("loaded", "load", "after"),
    Phase("proving", "create", "after"),
    Phase("starting the first node", "run --detach"),
    Phase("first node started", "run --detach", "after", (0,)),
    Phase("starting the others", "run --detach", "before", (1,), some=True),
    Phase("following", runs=True),
    Phase("asking to stop", "kill", asked=True, runs=True),
    Phase("cleaning up", "rm --force", asked=True, runs=True),
)


class Held:
    """The hosts of a rack, held in a phase. `containers` by host: what `docker exec` reaches each by."""

    def __init__(self, containers: dict[str, str], phase: Phase) -> None:
        self._containers, self._phase = containers, phase
        hosts = list(containers)
        self._held = [hosts[place] for place in phase.on] or hosts

    def __enter__(self) -> Held:
        for host in self._held if self._phase.held else []:
            self._root(host, _INSTALL, _WRAPPER)
            self._root(host, f"echo '{self._phase.when} {self._phase.held}' >{_HOLD}/what")
        if self._phase.name == "connecting":
            self._root(self._held[-1], "kill -STOP $(pgrep -xo sshd)")
        return self

    def __exit__(self, *_: Any) -> None:
        self.let_go()
        for host in self._containers:
            self._root(host, _REMOVE)

    def reached(self) -> bool:
        """Whether one of the hosts waits in this phase; further commands of the kind pass from now on."""
        if self._phase.name == "connecting":
            return self._says(self._held[-1], _CONNECTED)
        if not any(self._says(host, f"test -e {_HOLD}/reached") for host in self._held):
            return False
        for host in self._held:
            self._root(host, f": >{_HOLD}/what")
        return True

    def let_go(self) -> None:
        """Let what waits go on."""
        if self._phase.name == "connecting":
            self._root(self._held[-1], "kill -CONT $(pgrep -xo sshd)")
        for host in self._held if self._phase.held else []:
            self._root(host, f"touch {_HOLD}/go")

    def _root(self, host: str, script: str, text: str = "") -> str:
        command = ["docker", "exec", "-i", self._containers[host], "sh", "-c", script]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30).stdout

    def _says(self, host: str, script: str) -> bool:
        command = ["docker", "exec", self._containers[host], "sh", "-c", script]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


def left_on(container: str, runs: Sequence[str] = ()) -> list[str]:
    """What a deploy left on a host: a kind and a name each. `runs` never started: their folders count too."""
    command = ["docker", "exec", container, "sh", "-c", _LOOK, "look", *runs]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


def settled(look: Callable[[], list[str]], before: list[str], seconds: float = 15.0) -> list[str]:
    """What is there beyond `before`, once nothing is or the time is up: what ends by itself may take a moment."""
    until = time.monotonic() + seconds
    while (left := [line for line in look() if line not in before]) and time.monotonic() < until:
        time.sleep(0.2)
    return left
