"""`python -m trainer.agent ARGS`: one node of a run. Starts torchrun, and keeps what torchrun loses.

torchrun sorts nodes by the text of their addresses, restarts ranks whose fault is final, waits five minutes for nodes
that will never finish, and turns every exit code into 1. This process gives it addresses that sort as planned, ends it
once the ranks' verdict is known, and exits with that verdict's code. Standard library only.

`python -m trainer.agent --script train.py ARGS` runs a script of the user's the same way, `--script -m pkg.train` a
module.

MUSTER_COMES_BACK=1 says that the ground starts this node again when it ends badly, as Docker's restart policy does on
real hosts. A SIGTERM then means that the host goes down: the node leaves at once, to come back; SIGINT asks the run to
stop. An end that is final is repeated, without torchrun, to whoever starts the node again.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainer import config, script
from trainer.errors import DONE, FAILED, REFUSED, STOPPED, Refused, TrainError
from trainer.folder import replace
from trainer.orphans import die_with_parent
from trainer.verdict import Verdict, done, failed, publish

_POLL_SECONDS = 0.1
_FINISH_SECONDS = 10.0
_KILL_AFTER_SECONDS = 5.0
_RESOLVE_SECONDS = 60.0


def main() -> int:
    """Run this node until its ranks' verdict; returns the exit code of docs/contract.md."""
    die_with_parent(signal.SIGTERM)
    arguments = sys.argv[1:]
    name = os.environ.get("MUSTER_NODE") or socket.gethostname()
    folder = Path(os.environ["MUSTER_RUN_DIR"]) if os.environ.get("MUSTER_RUN_DIR") else None
    last = LastWords(folder, name, os.environ)
    if (code := last.code()) is not None:
        return code
    try:
        command = torchrun_command(arguments)
        if folder:
            here = {"node": name, "pid": os.getpid(), "host": socket.gethostname(), "t": time.time()}
            replace(folder / "nodes" / f"{name}.json", json.dumps(here))
        environment = torchrun_environment(os.environ, name)
    except (TrainError, OSError) as fault:
        known = fault if isinstance(fault, TrainError) else TrainError(f"cannot write the run folder: {fault}")
        if folder and not isinstance(fault, OSError):
            publish(failed(_place(), name, 0, known), folder, f"{name}-agent")
            last.leave(known.code)
        print(known.report(), file=sys.stderr)
        return known.code
    with _private_folder(folder, name) as outcome:
        node = Node(command, environment, outcome, relay=arguments[:1] == ["--script"])
        code = node.run()
        found = _verdict_on(arguments[1:], node, code, name) if arguments[:1] == ["--script"] else None
        if found:
            publish(found, folder, f"{name}-agent")
        if found or node.judged or code in (DONE, STOPPED):
            last.leave(code)
    return code


def _verdict_on(arguments: Sequence[str], node: Node, code: int, name: str) -> Verdict | None:
    """How a script of the user's ended on this node; None when only another node can know."""
    ranks = os.environ.get("PET_NPROC_PER_NODE", "1")
    first = _place() * int(ranks) if ranks.isdigit() else _place()
    what = script.name_of(arguments)
    if code == DONE:
        return done(first, name, 0)
    if code == STOPPED:
        return script.was_stopped(what, name, first)
    return None if node.leaves else script.why_failed(node.said, what, name, first)


def _place() -> int:
    return int(os.environ.get("PET_NODE_RANK") or "0")


class LastWords:
    """What this node ended with, kept in the run folder for a container that is started again. One start's only."""

    def __init__(self, folder: Path | None, name: str, environment: Mapping[str, str]) -> None:
        comes_back = folder is not None and environment.get("MUSTER_COMES_BACK") == "1"
        self._path = folder / "nodes" / f".{name}.last" if folder and comes_back else None
        self._start = environment.get("PET_RDZV_ID", "")

    def code(self) -> int | None:
        """The exit code of this start's node, if its end was final."""
        if self._path is None or not self._path.exists():
            return None
        start, _, code = self._path.read_text().rpartition(" ")
        return int(code) if start == self._start else None

    def leave(self, code: int) -> None:
        """The end is final."""
        if self._path is not None:
            replace(self._path, f"{self._start} {code}")


def torchrun_command(arguments: Sequence[str]) -> list[str]:
    """What starts torchrun for the trainer's ARGS or for `--script SCRIPT ARGS`. Raises Refused for what is wrong."""
    if arguments[:1] != ["--script"]:
        config.parse(arguments)
        return [sys.executable, "-u", "-m", "trainer.torchrun", "-m", "trainer", *arguments]
    words = list(arguments[1:])
    if not words:
        raise Refused("no script", "name it behind --script: train.py --lr 3e-4")
    if not words[0].startswith("-") and not Path(words[0]).is_file():
        raise Refused(f"no such script: {words[0]} (in {Path.cwd()})", "name it as seen from the folder that was sent")
    # -P: the user's folder may hold a `torch.py` that torchrun must not take for torch.
    return [sys.executable, "-u", "-P", "-m", "trainer.torchrun", *words]


@contextmanager
def _private_folder(run_folder: Path | None, name: str) -> Iterator[Path]:
    """A folder for this node's ranks to tell the agent; in the run folder, if known, so that a kill litters nothing."""
    if run_folder is None:
        with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
            yield Path(temporary)
        return
    folder = run_folder / "nodes" / f".{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def torchrun_environment(environment: Mapping[str, str], name: str) -> dict[str, str]:
    """`environment` with what torchrun needs made certain: an IP literal to meet at, an address that sorts as planned.

    torchrun gives rank 0 to the agent whose `--local-addr` sorts first as text (`sorted(state.participants)` in torch's
    dynamic_rendezvous), and only that one's address is ever connected to. So the master passes its IP literal and
    the others labels, which sort behind any IP literal and among themselves by node rank. Raises TrainError.
    """
    made = {**environment, "MUSTER_NODE": name}
    endpoint = environment.get("PET_RDZV_ENDPOINT", "")
    if not endpoint:  # a single node: torchrun's own defaults serve
        return made
    host, _, port = endpoint.rpartition(":")
    address = resolve(host.strip("[]"), _RESOLVE_SECONDS)
    made["PET_RDZV_ENDPOINT"] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    is_host = "is_host=1" in environment.get("PET_RDZV_CONF", "")
    if is_host:
        check_port_free(address, int(port))
    number = made.pop("PET_NODE_RANK", "") or "".join(re.findall(r"\d+$", name))
    label = f"node-{int(number):05d}" if number else f"node-{name}"
    made["PET_LOCAL_ADDR"] = environment.get("PET_LOCAL_ADDR") or (address if is_host else label)
    return made


def resolve(host: str, patience_seconds: float) -> str:
    """An IP literal for `host`, IPv4 first, waiting for a name that is not known yet (its container is starting)."""
    end = time.monotonic() + patience_seconds
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])
        except OSError as fault:
            if time.monotonic() > end:
                raise TrainError(
                    f"the rendezvous host {host!r} has no address after {patience_seconds:.0f} s: {fault}",
                    "is the master node running, and in the same network? an IP literal needs no names",
                ) from fault
            time.sleep(_POLL_SECONDS)


def check_port_free(address: str, port: int) -> None:
    """Raises Refused when something else listens there: torchrun would join the stranger and hang without a word."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as fault:
            raise Refused(
                f"cannot listen on {address}:{port} for the rendezvous: {fault.strerror}", "choose another port"
            ) from fault


class Node:
    """torchrun and its ranks on this node. `relay`: their consoles pass through here, and `said` has the last of it."""

    def __init__(self, command: list[str], environment: dict[str, str], outcome: Path, relay: bool = False) -> None:
        self._command, self._outcome, self._relay = command, outcome, relay
        self._environment = {**environment, "MUSTER_OUTCOME": str(outcome)}
        self._comes_back = environment.get("MUSTER_COMES_BACK") == "1"
        self._asked = self._given_up = False
        self._signalled: set[int] = set()
        self._grace = float(environment.get("PET_SHUTDOWN_TIMEOUT", "30")) + _KILL_AFTER_SECONDS
        self.leaves = self.judged = False
        self.said = ""

    def run(self) -> int:
        """Start torchrun and stay with it to its end; returns this node's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        torchrun = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._relay else None,
            stderr=subprocess.PIPE if self._relay else None,
            start_new_session=True,  # a Ctrl-C in the terminal is ours to pass on, once
            # Killed, not asked: a node that was lost must not make the others believe somebody wants the run to stop.
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        consoles = script.Consoles(torchrun) if self._relay else None
        self._watch(torchrun)
        self.said = consoles.last() if consoles else ""
        return self._code(torchrun.returncode)

    def _ask(self, number: int, *_: Any) -> None:
        if number == signal.SIGTERM and self._comes_back:
            self.leaves = True
        else:
            self._asked = True

    def _watch(self, torchrun: subprocess.Popen[bytes]) -> None:
        kill_at, asked = float("inf"), False
        watch_input = os.environ.get("MUSTER_STOP_ON_EOF") == "1"
        while torchrun.poll() is None:
            if watch_input and _input_closed():
                self._asked, watch_input = True, False
            now = time.monotonic()
            if self._asked:
                kill_at = kill_at if asked else now + self._grace
                asked = True
                self._ask_ranks(torchrun)
            if kill_at == float("inf") and self._verdicts():
                kill_at = now + _FINISH_SECONDS  # the other nodes are about to say the same, and torchrun to end
            if now > kill_at or self.leaves:
                torchrun.kill()
            _wait(torchrun, _POLL_SECONDS)

    def _ask_ranks(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Ask the ranks to stop, not torchrun: it would leave the other nodes' torchruns waiting for it.

        A rank that is started meanwhile is asked as well. Where none lives (none began yet, or they died and wait for a
        peer to begin again) there is nothing to save, and torchrun would wait in vain.
        """
        living = [rank for rank in self._ranks() if _alive(rank)]
        if self._verdicts() or self._given_up:
            return
        for rank in set(living) - self._signalled:
            self._signalled.add(rank)
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGTERM)
        if not living:
            self._given_up = True
            torchrun.terminate()

    def _ranks(self) -> list[int]:
        return [int(path.read_text()) for path in self._outcome.glob("[!.]*.pid")]

    def _verdicts(self) -> list[Verdict]:
        return [Verdict(**json.loads(path.read_text())) for path in sorted(self._outcome.glob("[!.]*.json"))]

    def _code(self, torchrun_code: int) -> int:
        codes = [found.code for found in self._verdicts()]
        self.judged = bool(codes)
        if self.leaves and not codes:
            return 128 + signal.SIGTERM
        if codes:
            return max(codes, key=lambda code: (code == REFUSED, code == FAILED, code == STOPPED))
        if self._asked:
            return STOPPED
        return FAILED if torchrun_code else 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait(torchrun: subprocess.Popen[bytes], seconds: float) -> None:
    # Popen's wait wakes up every few milliseconds to look, on a core that a rank computes on.
    try:
        handle = os.pidfd_open(torchrun.pid)
    except (AttributeError, OSError):  # not on this system, by this kernel (before 5.3), or in this container
        with suppress(subprocess.TimeoutExpired):
            torchrun.wait(seconds)
        return
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)


def _input_closed() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not os.read(0, 1024)


if __name__ == "__main__":
    sys.exit(main())
