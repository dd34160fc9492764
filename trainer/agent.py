"""`python -m trainer.agent ARGS`: one node of a run. Starts torchrun, and keeps what torchrun loses.

torchrun sorts nodes by the text of their addresses, restarts ranks whose fault is final, waits five minutes for nodes
that will never finish, and turns every exit code into 1. This process gives it addresses that sort as planned, ends it
once the ranks' verdict is known, and exits with that verdict's code. Standard library only.

`python -m trainer.agent --script train.py ARGS` runs a script of the user's the same way, `--script -m pkg.train` a
module.
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

from trainer import config
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
    try:
        command = torchrun_command(arguments)
        if folder:
            here = {"node": name, "pid": os.getpid(), "host": socket.gethostname(), "t": time.time()}
            replace(folder / "nodes" / f"{name}.json", json.dumps(here))
        environment = torchrun_environment(os.environ, name)
    except (TrainError, OSError) as fault:
        known = fault if isinstance(fault, TrainError) else TrainError(f"cannot write the run folder: {fault}")
        if folder and not isinstance(fault, OSError):
            publish(failed(int(os.environ.get("PET_NODE_RANK", "0")), name, 0, known), folder, f"{name}-agent")
        print(known.report(), file=sys.stderr)
        return known.code
    with _private_folder(folder, name) as outcome:
        code = Node(command, environment, outcome).run()
    if arguments[:1] == ["--script"] and code == DONE and folder:
        publish(done(int(os.environ.get("PET_NODE_RANK", "0")), name, 0), folder, f"{name}-agent")
    return code


def torchrun_command(arguments: Sequence[str]) -> list[str]:
    """What starts torchrun for the trainer's ARGS or for `--script SCRIPT ARGS`. Raises Refused for what is wrong."""
    if arguments[:1] != ["--script"]:
        config.parse(arguments)
        return [sys.executable, "-m", "torch.distributed.run", "-m", "trainer", *arguments]
    script = list(arguments[1:])
    if not script:
        raise Refused("no script", "name it behind --script: train.py --lr 3e-4")
    if not script[0].startswith("-") and not Path(script[0]).is_file():
        raise Refused(f"no such script: {script[0]} (in {Path.cwd()})", "name it as seen from the folder that was sent")
    # -P: the user's folder may hold a `torch.py` that torchrun must not take for torch.
    return [sys.executable, "-P", "-m", "torch.distributed.run", *script]


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
    """torchrun and its ranks on this node."""

    def __init__(self, command: list[str], environment: dict[str, str], outcome: Path) -> None:
        self._command, self._outcome = command, outcome
        self._environment = {**environment, "MUSTER_OUTCOME": str(outcome)}
        self._asked = False
        self._grace = float(environment.get("PET_SHUTDOWN_TIMEOUT", "30")) + _KILL_AFTER_SECONDS

    def run(self) -> int:
        """Start torchrun and stay with it to its end; returns this node's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        torchrun = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is ours to pass on, once
            # Killed, not asked: a node that was lost must not make the others believe somebody wants the run to stop.
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        self._watch(torchrun)
        return self._code(torchrun.returncode)

    def _ask(self, *_: Any) -> None:
        self._asked = True

    def _watch(self, torchrun: subprocess.Popen[bytes]) -> None:
        kill_at, told = float("inf"), False
        watch_input = os.environ.get("MUSTER_STOP_ON_EOF") == "1"
        while torchrun.poll() is None:
            if watch_input and _input_closed():
                self._asked, watch_input = True, False
            now = time.monotonic()
            if self._asked and not told:
                told, kill_at = True, now + self._grace
                self._ask_ranks(torchrun)
            if kill_at == float("inf") and self._verdicts():
                kill_at = now + _FINISH_SECONDS  # the other nodes are about to say the same, and torchrun to end
            if now > kill_at:
                torchrun.kill()
            _wait(torchrun, _POLL_SECONDS)

    def _ask_ranks(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Ask the ranks to stop, not torchrun: it would leave the other nodes' torchruns waiting for it."""
        ranks = [int(path.read_text()) for path in self._outcome.glob("[!.]*.pid")]
        if not ranks:  # none has anything to save yet
            torchrun.terminate()
        if not self._verdicts():
            for rank in ranks:
                with suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGTERM)

    def _verdicts(self) -> list[Verdict]:
        return [Verdict(**json.loads(path.read_text())) for path in sorted(self._outcome.glob("[!.]*.json"))]

    def _code(self, torchrun_code: int) -> int:
        codes = [found.code for found in self._verdicts()]
        if codes:
            return max(codes, key=lambda code: (code == REFUSED, code == FAILED, code == STOPPED))
        if self._asked:
            return STOPPED
        return FAILED if torchrun_code else 0


def _wait(torchrun: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        torchrun.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _input_closed() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not os.read(0, 1024)


if __name__ == "__main__":
    sys.exit(main())
