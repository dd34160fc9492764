"""`python -m trainer.node.agent ARGS`: one node of a run. Starts torchrun, and keeps what torchrun loses.

torchrun sorts nodes by the text of their addresses, restarts ranks whose fault is final, waits five minutes for nodes
that will never finish, and turns every exit code into 1. This process gives it addresses that sort as planned, ends it
once the ranks' verdict is known, and exits with that verdict's code. Standard library only.

`python -m trainer.node.agent --script train.py ARGS` runs a user's script the same way, `--script -m pkg.train` a
module.

MUSTER_RESTARTED_BY_HOST=1 says that the host starts this node again when it ends badly, as Docker's restart policy
does. A SIGTERM then means that the host goes down: the node leaves at once, to come back; SIGINT asks the run to
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from muster.errors import DONE, FAILED, REFUSED, SIGNALLED, STOPPED, Refused, TrainError
from muster.files import keep_ballast, replace, surely
from muster.stop import UNASKED

from .. import NAME, config
from ..verdict import Verdict, done, failed, publish
from . import handover, meeting, script, telemetry, together, work
from .diary import Diary
from .output import Output
from .parent_death import die_with_parent
from .stillness import Stillness

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
        secrets = handover.take(os.environ)
    except KeyboardInterrupt:
        publish(
            Verdict("stopped", STOPPED, _place(), name, 0, "stopped before its secrets came"), folder, f"{name}-agent"
        )
        last.leave(STOPPED)
        return STOPPED
    try:
        is_script = arguments[:1] == ["--script"]
        began = time.time()
        if is_script and folder:
            _enter_work(folder, name)
        command = torchrun_command(arguments)
        if folder:
            here = {"node": name, "pid": os.getpid(), "host": socket.gethostname(), "t": time.time()}
            replace(folder / "nodes" / f"{name}.json", json.dumps(here))
        environment = torchrun_environment({**os.environ, **secrets}, name)
    except (TrainError, OSError) as fault:
        known = fault if isinstance(fault, TrainError) else TrainError(f"cannot write the run folder: {fault}")
        if folder and not isinstance(fault, OSError):
            publish(failed(_place(), name, 0, known), folder, f"{name}-agent")
            last.leave(known.code)
        print(known.report(), file=sys.stderr)
        return known.code
    with _private_folder(folder, name) as outcome:
        diary = Diary(folder, name, outcome)
        node = Node(command, environment, outcome, diary, relay=is_script)
        with telemetry.beside(folder, name, packages=is_script and _place() == 0):
            code = node.run()
        if is_script and folder:
            _tell_kept(folder, diary, began)
        silent = is_script and not node.judged
        found = _verdict_on(arguments[1:], node, code, name) if silent else None
        if found and not publish(found, folder, f"{name}-agent", outcome):
            print(f"{found.verdict}: {found.message}\nerror: the disk of {folder} takes no more", file=sys.stderr)
        code = found.code if found else code
        if found or node.judged or code in (DONE, STOPPED):
            last.leave(code)
    return code


def _enter_work(folder: Path, node: str) -> None:
    """Go to the run's work folder, with what was sent in it, and make its home ours; where nothing was sent, stay."""
    sent = os.environ.get("MUSTER_SENT")
    if not sent:
        return
    stay = work.prepare(folder, Path(sent))
    if stay:
        more = f" and {len(stay) - 5} more" if len(stay) > 5 else ""
        print(f"{node}: the run has changed {', '.join(stay[:5])}{more}: these stay, and what was sent is not used")
    os.environ["HOME"] = str(folder / work.HOME)
    os.chdir(folder / work.WORK)


def _tell_kept(folder: Path, diary: Diary, began: float) -> None:
    """Tell how much the script has left; save what it wrote into an image's own folder."""
    try:
        if os.environ.get("MUSTER_SAVE_CHANGES") == "1" and Path.cwd() != Path("/"):
            work.save_changes(folder, Path.cwd(), began)
        left = work.kept(folder)
    except OSError as fault:
        print(f"{diary.node}: what the script has written could not be counted: {fault}", file=sys.stderr)
        return
    diary.tell_kept(left.files, left.bytes)


def _verdict_on(arguments: Sequence[str], node: Node, code: int, name: str) -> Verdict | None:
    """How a script of the user's ended on this node; None when only another node can know."""
    ranks = os.environ.get("PET_NPROC_PER_NODE", "1")
    first = _place() * int(ranks) if ranks.isdigit() else _place()
    what = script.name_of(arguments)
    if code == DONE:
        return _verdict_on_end(what, node, first, name)
    if code == STOPPED:
        return script.was_stopped(what, name, first)
    culprit = None if node.leaves else node.diary.culprit
    return script.why_failed(culprit.said, culprit.how, what, name, culprit.life) if culprit else None


def _verdict_on_end(what: str, node: Node, first: int, name: str) -> Verdict:
    """On a script that ended well: whether its ranks trained with the others."""
    nodes = os.environ.get("PET_NNODES", "1")
    why = together.trained_alone(node.outcome, node.diary.lives, int(nodes) if nodes.isdecimal() else 1)
    if not why or os.environ.get("MUSTER_SEPARATE") == "1":
        return done(first, name, 0)
    hint = "join one process group, as torchrun's variables say; where each rank shall train alone: --separate"
    return failed(first, name, 0, TrainError(f"{what} trained alone: {why}", hint))


def _place() -> int:
    return int(os.environ.get("PET_NODE_RANK") or "0")


class LastWords:
    """What this node ended with, kept in the run folder for a container that is started again. One start's only."""

    def __init__(self, folder: Path | None, name: str, environment: Mapping[str, str]) -> None:
        restarted_by_host = folder is not None and environment.get("MUSTER_RESTARTED_BY_HOST") == "1"
        self._path = folder / "nodes" / f".{name}.last" if folder and restarted_by_host else None
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
            surely(partial(replace, self._path, f"{self._start} {code}"), self._path.parent / self._path.stem)


def torchrun_command(arguments: Sequence[str]) -> list[str]:
    """What starts torchrun for the trainer's ARGS or for `--script SCRIPT ARGS`. Raises Refused for what is wrong."""
    if arguments[:1] != ["--script"]:
        config.parse(arguments)
        return [sys.executable, "-u", "-P", "-m", f"{NAME}.elastic.torchrun", "-m", NAME, *arguments]
    words = list(arguments[1:])
    if words[:1] == ["--per-node"] and len(words) > 1:
        words = [str(Path(__file__).resolve().parents[1] / "elastic" / "launcher.py"), *words[1:]]
    if not words:
        raise Refused("no script", "name it behind --script: train.py --lr 3e-4")
    if not words[0].startswith("-") and not Path(words[0]).is_file():
        raise Refused(f"no such script: {words[0]} (in {Path.cwd()})", "name it as seen from the folder that was sent")
    # -P: the user's folder may hold a `torch.py` that torchrun must not take for torch.
    return [sys.executable, "-u", "-P", "-m", f"{NAME}.elastic.torchrun", *words]


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
    keep_ballast(folder)
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
    address = meeting.resolve(host.strip("[]"), _RESOLVE_SECONDS)
    made["PET_RDZV_ENDPOINT"] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    is_host = "is_host=1" in environment.get("PET_RDZV_CONF", "")
    if is_host:
        made |= meeting.hold(address, int(port))
    number = made.pop("PET_NODE_RANK", "") or "".join(re.findall(r"\d+$", name))
    label = f"node-{int(number):05d}" if number else f"node-{name}"
    made["PET_LOCAL_ADDR"] = environment.get("PET_LOCAL_ADDR") or (address if is_host else label)
    return made


class Node:
    """torchrun and its ranks on this node. `relay`: what they print passes through here, so that `diary` hears it."""

    def __init__(
        self, command: list[str], environment: dict[str, str], outcome: Path, diary: Diary, relay: bool = False
    ) -> None:
        self._command, self.outcome, self.diary, self._relay = command, outcome, diary, relay
        environment = together.observed(environment) if relay else _trainer_first(environment)
        self._environment = {**environment, "MUSTER_OUTCOME_DIR": str(outcome)}
        self._restarted_by_host = environment.get("MUSTER_RESTARTED_BY_HOST") == "1"
        restarts = environment.get("PET_MAX_RESTARTS", "")
        self._last_attempt = int(restarts) if restarts.isdecimal() else 0
        self._asked_at = float("inf")
        self._given_up = False
        self._signalled: set[int] = set()
        self._grace = float(environment.get("PET_SHUTDOWN_TIMEOUT", "30")) + _KILL_AFTER_SECONDS
        self.leaves = self.judged = False

    def run(self) -> int:
        """Start torchrun and stay with it to its end; returns this node's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        with suppress(OSError):
            (self.outcome / UNASKED).touch()
        output = Output(self.outcome, self.diary.run_folder, self._environment) if self._relay else None
        torchrun = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._relay else None,
            stderr=subprocess.PIPE if self._relay else None,
            pass_fds=meeting.held(self._environment),
            start_new_session=True,  # a Ctrl-C in the terminal is ours to pass on, once
            # Killed, not asked: a node that was lost must not make the others believe somebody wants the run to stop.
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )
        meeting.let_go(self._environment)
        if output:
            output.follow(torchrun)
        words = output.words if output else _no_words
        self._watch(torchrun, words)
        self.diary.keep(words)
        if output:
            output.finish()
        return self._code(torchrun.returncode)

    def _ask(self, number: int, *_: Any) -> None:
        if number == signal.SIGTERM and self._restarted_by_host:
            self.leaves = True
        else:
            self._asked_at = min(self._asked_at, time.time())

    @property
    def _asked(self) -> bool:
        return self._asked_at < float("inf")

    def _failed_before(self) -> bool:
        """Whether a rank had failed for good before anybody asked this node to stop."""
        lives = self.diary.lives
        return self.diary.first_failure < self._asked_at and all(one.attempt >= self._last_attempt for one in lives)

    def _watch(self, torchrun: subprocess.Popen[bytes], words: Callable[[int], str]) -> None:
        kill_at, asked = float("inf"), False
        folder = self.diary.run_folder
        still = Stillness(self.outcome, folder / work.WORK if folder else None) if self._relay else None
        watch_input = os.environ.get("MUSTER_STOP_ON_EOF") == "1"
        while torchrun.poll() is None:
            if watch_input and _input_closed():
                watch_input = False
                self._ask(signal.SIGINT)
            self.diary.keep(words)
            if still:
                for rank, about in still.look(self.diary.lives):
                    self.diary.tell_still(rank, about)
            now = time.monotonic()
            if self._asked:
                kill_at = kill_at if asked else now + self._grace
                asked = True
                self._ask_ranks(torchrun)
            self._judge_leavers()
            if kill_at == float("inf") and self._verdicts():
                kill_at = now + _FINISH_SECONDS  # the other nodes are about to say the same, and torchrun to end
            if now > kill_at or self.leaves:
                torchrun.kill()
            _wait(torchrun, _POLL_SECONDS)

    def _judge_leavers(self) -> None:
        """A rank of our trainer ends with 0 only when it left a verdict: another one leaves the others waiting."""
        for life in () if self._relay else self.diary.lives:
            if life.code == DONE and not any(self.outcome.glob(f"[!.]*-{life.local_rank}.json")):
                why = TrainError(
                    f"rank {life.rank} left with code 0 before the run's end, and the others wait for it",
                    f"does the recipe call sys.exit? logs/rank-{life.rank}.log has its last words",
                )
                verdict = failed(life.rank, self.diary.node, 0, why)
                publish(verdict, self.diary.run_folder, f"{self.diary.node}-{life.local_rank}", self.outcome)

    def _ask_ranks(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Ask the ranks to stop, not torchrun: it would leave the other nodes' torchruns waiting for it.

        A rank that is started meanwhile is asked as well. Where none lives (none began yet, or they died and wait for a
        peer to begin again) there is nothing to save, and torchrun would wait for nobody.
        """
        living = [rank for rank in self._ranks() if _alive(rank)]
        if self._verdicts() or self._given_up:
            return
        (self.outcome / UNASKED).unlink(missing_ok=True)  # without it, ranks take the signal for one of torchrun's
        for rank in set(living) - self._signalled:
            self._signalled.add(rank)
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGTERM)
        if not living:
            self._given_up = True
            torchrun.terminate()

    def _ranks(self) -> list[int]:
        return [int(path.read_text()) for path in self.outcome.glob("[!.]*.pid")]

    def _verdicts(self) -> list[Verdict]:
        return [Verdict(**json.loads(path.read_text())) for path in sorted(self.outcome.glob("[!.]*.json"))]

    def _code(self, torchrun_code: int) -> int:
        codes = [found.code for found in self._verdicts()]
        self.judged = bool(codes)
        if self.leaves and not codes:
            return SIGNALLED + signal.SIGTERM
        if codes:
            return max(codes, key=lambda code: (code == REFUSED, code == FAILED, code == STOPPED))
        if self._asked and torchrun_code and not self._failed_before():
            return STOPPED
        return FAILED if torchrun_code else DONE


def _trainer_first(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` in which ranks of the trainer import it, and no file of that name in the current folder."""
    made = {**environment, "PYTHONSAFEPATH": "1"}
    if "." not in NAME:  # in a wheel it lies where Python looks anyhow
        home = str(Path(__file__).resolve().parents[2])
        others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", home)]
        made["PYTHONPATH"] = os.pathsep.join([home, *others])
    return made


def _no_words(local_rank: int) -> str:
    """Ranks of the trainer say in their verdicts why they failed."""
    return ""


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
