"""The phases of a `fab deploy`, each paused on the hosts while something happens to the control side.

A rack's host gets a wrapper in front of its own `docker` or `tar`. In it, one kind of command waits until it is
released, before or after the real command runs. Everything else on the host is real. In each phase the control side
gets one signal; then the hosts are searched for leftovers. After a kill -9 this happens once `fab down --hosts` has
run, while the paused command is still under way.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.control import BASE, FAB

HOME = Path(__file__).resolve().parents[2]
CODE_BYTES = 12_000_000  # more than the buffers on the way hold: a program that waits holds up its sender

_HOLD = "/run/muster-hold"
# Many requests go to the engine itself through `docker system dial-stdio`. This program carries them, and holds one.
_CARRY = f"""
import os, re, subprocess, time
engine = subprocess.Popen(["/usr/bin/docker", "system", "dial-stdio"], stdin=subprocess.PIPE)
while piece := os.read(0, 1 << 16):
    what = open("{_HOLD}/what").read().partition(" ")[2].strip()
    if what and re.match(what, piece.decode("latin-1")):
        open("{_HOLD}/reached", "w").close()
        while not os.path.exists("{_HOLD}/go"):
            time.sleep(0.1)
    engine.stdin.write(piece)
    engine.stdin.flush()
engine.stdin.close()
engine.wait()
"""
_WRAPPER = f"""#!/bin/sh
real=/usr/bin/${{0##*/}}
[ -s {_HOLD}/what ] || exec $real "$@"
read -r when what <{_HOLD}/what
case "$*,$what" in "system dial-stdio,"[PD][OE]*) exec python3 -c '{_CARRY}' ;; esac
case "$*" in "$what"*) ;; *) exec $real "$@" ;; esac
[ "$when" = before ] || $real "$@"; code=$?
touch {_HOLD}/reached
while [ ! -e {_HOLD}/go ]; do sleep 0.1; done
[ "$when" = after ] || exec $real "$@"
exit $code
"""
_INSTALL = f"""
mkdir -p {_HOLD}; chmod 777 {_HOLD}; rm -f {_HOLD}/*
cat >/usr/local/bin/$1; chmod 755 /usr/local/bin/$1
"""
_REMOVE = f"touch {_HOLD}/go 2>/dev/null; rm -f /usr/local/bin/docker /usr/local/bin/tar"
_CONNECTED = "awk '$2 ~ /:0016$/ && $4 == \"01\"' /proc/net/tcp /proc/net/tcp6 | grep -q ."
# Lists leftovers, of which there may be none. The folder of a started run and the audit log are not leftovers.
_LIST_LEFTOVERS = """
/usr/bin/docker ps --all --format 'container {{.Names}} {{.Status}}'
/usr/bin/docker network ls --filter type=custom --format 'network {{.Name}}'
find /home/muster/.muster -name '*.starting' -o -name '*.part' -o -name 'lock-*' ! -name '*.step' | sed 's/^/file /'
find /home/muster/.muster/folders -name '.coming.*' | sed 's/^/file /'
# The folder of claims stays, without a claim in it. Docker itself makes moby-detect-* for a moment at each start.
claims='/var/tmp/muster-claims.????????????????'
find /tmp /var/tmp /dev/shm /var/lib/docker/tmp -mindepth 1 ! -path "$claims" ! -name 'moby-detect-*' 2>/dev/null |
  sed 's/^/file /'
pgrep --uid muster --list-full | grep -v sshd | sed 's/^/process /'
for run; do [ ! -e "/home/muster/.muster/runs/$run" ] || echo "file of $run, which never started"; done
"""


@dataclass(frozen=True)
class Phase:
    """A moment of a deploy in which one command waits on the hosts.

    `held` is how the waiting command of `program` begins, or the pattern of a request to the engine. It waits on the
    hosts at the places `on` (on all if empty), before or after it is done (`when`). `asked`: `fab stop` leads to this
    phase. `runs`: all nodes have started. `some`: some nodes have started. `image`: the hosts are sent an image that
    they do not have.
    """

    name: str
    held: str = ""
    when: str = "before"
    on: tuple[int, ...] = ()
    asked: bool = False
    runs: bool = False
    some: bool = False
    program: str = "docker"
    image: bool = False


PHASES = (
    Phase("connecting"),
    Phase("looking at the hosts", "info --format {{.DockerRootDir}}"),
    Phase("looking at their images", "image inspect"),
    Phase("trying the links", "run --rm"),
    Phase("sending", "load", image=True),
    Phase("loaded", "load", "after", image=True),
    Phase("proving", "create", "after", image=True),
    Phase("sending the folder", "-C .coming.", program="tar"),
    Phase("folder arrived", "-C .coming.", "after", program="tar"),
    Phase("starting the first node", "run --detach"),
    Phase("first node started", "run --detach", "after", (0,)),
    Phase("starting the others", "run --detach", "before", (1,), some=True),
    Phase("following", runs=True),
    Phase("asking to stop", "POST [^ ]*/kill", asked=True, runs=True),
    Phase("cleaning up", "DELETE [^ ]*/containers/", asked=True, runs=True),
)


class Held:
    """The hosts of a rack, paused in a phase. `containers`: by host, its name for `docker exec`."""

    def __init__(self, containers: dict[str, str], phase: Phase) -> None:
        self._containers, self._phase = containers, phase
        hosts = list(containers)
        self._held = [hosts[place] for place in phase.on] or hosts

    def __enter__(self) -> Held:
        for host in self._held if self._phase.held else []:
            self._root(host, _INSTALL, _WRAPPER, self._phase.program)
            self._root(host, f"echo '{self._phase.when} {self._phase.held}' >{_HOLD}/what")
        if self._phase.name == "connecting":
            self._root(self._held[-1], "kill -STOP $(pgrep -xo sshd)")
        return self

    def __exit__(self, *_: Any) -> None:
        self.let_go()
        for host in self._containers:
            self._root(host, _REMOVE)

    def reached(self) -> bool:
        """Whether one of the hosts waits in this phase; if so, further commands of the kind pass from now on."""
        if self._phase.name == "connecting":
            return self._says(self._held[-1], _CONNECTED)
        if not any(self._says(host, f"test -e {_HOLD}/reached") for host in self._held):
            return False
        for host in self._held:
            self._root(host, f": >{_HOLD}/what")
        return True

    def let_go(self) -> None:
        """Release the commands that wait."""
        if self._phase.name == "connecting":
            self._root(self._held[-1], "kill -CONT $(pgrep -xo sshd)")
        for host in self._held if self._phase.held else []:
            self._root(host, f"touch {_HOLD}/go")

    def _root(self, host: str, script: str, text: str = "", *words: str) -> str:
        command = ["docker", "exec", "-i", self._containers[host], "sh", "-c", script, "root", *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30).stdout

    def _says(self, host: str, script: str) -> bool:
        command = ["docker", "exec", self._containers[host], "sh", "-c", script]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


def left_on(container: str, runs: Sequence[str] = ()) -> list[str]:
    """What a deploy left on a host: one line with kind and name each. `runs` never started: their folders count too."""
    command = ["docker", "exec", container, "sh", "-c", _LIST_LEFTOVERS, "look", *runs]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


def settled(look: Callable[[], list[str]], before: list[str], seconds: float = 15.0) -> list[str]:
    """What `look` lists beyond `before`; waits up to `seconds` for it to go, since a process may end a moment later."""
    until = time.monotonic() + seconds
    while (left := [line for line in look() if line not in before]) and time.monotonic() < until:
        time.sleep(0.2)
    return left


@dataclass(frozen=True)
class Trial:
    """The result of one signal: the lines of what is left, fab's exit code and its output."""

    left: list[str]
    code: int
    output: str


def push(containers: Mapping[str, str]) -> None:
    """Push the base image to the hosts, and tag it with its own name too: preflight then probes from within it."""
    _fab("push", tuple(containers), "--image", BASE)
    for container in containers.values():
        name = ["docker", "exec", container, "docker", "tag", "muster-muster-trainer-cpu:latest", BASE]
        subprocess.run(name, check=True)


def hit(
    names: Sequence[str], containers: Mapping[str, str], phase: Phase, number: signal.Signals, scratch: Path
) -> Trial:
    """Deploy, signal the control side in a phase, and list what stays. AssertionError if the phase never came."""
    run = f"left-{uuid.uuid4().hex[:8]}"
    run_dir, folder = HOME / "runs" / run, scratch / "code"
    folder.mkdir(exist_ok=True)
    (folder / "code.bin").write_bytes(random.randbytes(CODE_BYTES))

    # Only a Ctrl-C removes what has started: after a kill -9, the folder of a node that ran belongs to the run.
    never = () if phase.runs or (phase.some and number == signal.SIGKILL) else (run,)

    def look() -> list[str]:
        return [f"{host} {line}" for host in names for line in left_on(containers[host], never)]

    before, ended = look(), False
    image = _new_image(run, folder) if phase.image else BASE
    words = ("--image", image, "--folder", str(folder), "--run", run, "--args=--steps 100000 --checkpoint-every 10")
    try:
        with Held(dict(containers), phase) as held, (scratch / "said").open("w+") as file:
            out = {"cwd": HOME, "stdout": file, "stderr": subprocess.STDOUT}
            commands = [subprocess.Popen(_line("deploy", names, *words), **out)]
            try:
                try:
                    if phase.runs:
                        _until(lambda: b'"step"' in _read(run_dir / "ranks" / "rank-0.jsonl"), "steps", commands[0])
                    if phase.asked:
                        commands.append(subprocess.Popen(_line("stop", names, "--run", run), **out))
                    if not phase.runs or phase.held:
                        _until(held.reached, phase.name, commands[-1])
                except AssertionError as why:
                    raise AssertionError(f"{why}; fab said:\n{Path(file.name).read_text()}") from None
                code = _end(commands[-1], number, held)
                if not phase.held:
                    held.let_go()
                if number == signal.SIGKILL:
                    _fab("down", names)
                elif phase.runs and not phase.asked:  # the run continues without its follower, so it has to be stopped
                    _fab("stop", names, "--run", run)
            finally:
                for command in commands:
                    command.kill()
            held.let_go()
            left = settled(look, before)
            ended = not left
            file.seek(0)
            return Trial(left, code, file.read())
    finally:
        if not ended:
            _fab("down", names, "--run", run)
        for host in names:
            remove = ["docker", "exec", containers[host], "rm", "-rf", f"/home/muster/.muster/runs/{run}"]
            subprocess.run(remove, check=True)
        shutil.rmtree(run_dir, ignore_errors=True)
        if phase.image:
            subprocess.run(["docker", "rmi", image], check=True, capture_output=True)


def _new_image(name: str, folder: Path) -> str:
    """Build an image that no host has: the base, and a file of the folder."""
    command = ["docker", "build", "--quiet", "--tag", f"muster-{name}", "--file", "-", str(folder)]
    subprocess.run(command, input=f"FROM {BASE}\nCOPY code.bin /\n", text=True, check=True, capture_output=True)
    return f"muster-{name}"


def _end(fab: subprocess.Popen[bytes], number: signal.Signals, held: Held) -> int:
    """Signal fab; return its exit code. Commands on the hosts stay paused until fab has ended, or waits for them."""
    fab.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        return fab.wait(3)
    held.let_go()
    return fab.wait(90)


def _until(condition: Callable[[], bool], what: str, fab: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert fab.poll() is None, f"fab ended with {fab.returncode} before: {what}"
        assert time.monotonic() < end, f"waited for: {what}, which did not come"
        time.sleep(0.1)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _line(task: str, names: Sequence[str], *words: str) -> list[str]:
    return [str(FAB), task, "--hosts", ",".join(names), *words]


def _fab(task: str, names: Sequence[str], *words: str) -> None:
    done = subprocess.run(_line(task, names, *words), cwd=HOME, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"fab {task}: {done.stderr}"
