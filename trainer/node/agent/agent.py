"""`python -m muster.trainer.node agent ARGS`: the agent, which runs one node of a run; node.py watches torchrun.

By itself, torchrun (launch/torchrun.py) restarts ranks even if their failure is final, waits for nodes that will never
finish, and turns every exit code into 1. So the agent gives torchrun node addresses that sort in the planned order,
ends torchrun once the ranks' verdict is known, and exits with that verdict's code. Standard library only.

`python -m muster.trainer.node agent --script train.py ARGS` runs a user's script in the same way, and
`--script -m pkg.train` runs a module. Below Slurm's srun, Slurm's variables replace the missing ones of
docs/develop/contract.md (slurm.py).

MUSTER_RESTARTED_BY_HOST=1 means that the host starts this node again when it ends badly, as Docker's restart policy
does. A SIGTERM then means that the host shuts down: the node leaves immediately and comes back later. SIGINT asks the
run to stop. If the node's end was final and the host starts the node again, the agent ends with the same exit code,
without starting torchrun.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import muster
from muster.errors import DONE, FAILED, REFUSED, STOPPED, Refused, TrainError
from muster.files import replace
from muster.reserve import JOURNAL, reserve_room

from ... import NAME, config
from ...verdict import RESUME, Verdict, done, failed, publish
from .. import notes, torch_names, variables
from ..beside import overlay_connection, telemetry
from ..ending import judge_below, outside_files, reached_step, script_verdict, training_alone
from ..files import caches, work
from ..launch import style
from ..membership import alive, all_nodes, arbiter, meeting, min_nodes
from ..parent_death import die_with_parent
from ..queue import claims, waiting_node
from ..roles import role_node as roles
from . import command, handover, pods, slurm, stop_words
from .diary import Diary
from .final_end import FinalEnd
from .limit import Limit
from .node import Node

_DUMP_WAIT, _DUMP_WAIT_MS = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "2500"
_RESOLVE_SECONDS = 60.0


def main() -> int:
    """Run this node until its ranks have a verdict; returns an exit code from contract.md."""
    # On a host without an engine, the parent processes stand in for a container. When a container ends, its node is
    # killed, not asked to stop; the same must happen here.
    die_with_parent(signal.SIGKILL if os.environ.get("MUSTER_ROOT") else signal.SIGTERM)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # they are for the ranks; before these begin, ignore them
        signal.signal(number, lambda *_: None)
    try:
        if source := next((each for each in (slurm, pods) if each.applies(os.environ)), None):
            os.environ |= source.variables(os.environ, sys.argv[1:], Path.cwd())
            os.environ.pop(pods.KEY, None)
            slurm.remove_earlier_verdicts(os.environ)
    except (TrainError, OSError) as fault:
        known = fault if isinstance(fault, TrainError) else Refused(str(fault))
        print(known.report(), file=sys.stderr)
        return known.code
    name = os.environ.get("MUSTER_NODE") or socket.gethostname()
    os.environ |= roles.variables(os.environ, name)
    folder = Path(os.environ["MUSTER_RUN_DIR"]) if os.environ.get("MUSTER_RUN_DIR") else None
    with alive.hold_lock(folder, name, os.environ.get("PET_RDZV_ID", "")) as leave:
        end = FinalEnd(folder, name, os.environ)
        try:
            own = claims.own_claim(os.environ)
            over = (
                overlay_connection.hold(os.environ, partial(_without_overlay, name, end))
                if end.code() is None
                else None
            )
        except (claims.NoClaim, overlay_connection.NoOverlay) as fault:
            print(f"refused: {fault}", file=sys.stderr)
            code = end.publish_verdict(Verdict("refused", REFUSED, variables.first_rank(), name, 0, f"{name}: {fault}"))
            leave(code)
            return code
        code = _run(sys.argv[1:], folder, name, end, own)
        if own and end.is_final(code):
            own.leave()
        if over and end.is_final(code):
            over()
        leave(code)
    return code


def _without_overlay(name: str, end: FinalEnd) -> None:
    """End this node immediately: its ranks would wait for peers that they can no longer reach."""
    words = f"{name}: the overlay network of this run has ended on this host"
    print(f"failed: {words}", file=sys.stderr, flush=True)
    os._exit(end.publish_verdict(Verdict("failed", FAILED, variables.first_rank(), name, 0, words)))


def _run(arguments: list[str], folder: Path | None, name: str, end: FinalEnd, own: claims.Claims | None) -> int:
    if (code := end.code()) is not None:
        return code
    try:
        secrets = handover.receive_secrets(os.environ)
    except KeyboardInterrupt:
        words = "stopped before its secrets arrived"
        return end.publish_verdict(Verdict("stopped", STOPPED, variables.first_rank(), name, 0, words))
    role_node = None
    try:
        is_script = arguments[:1] == ["--script"]
        of_script = folder if is_script else None
        began, ticks = time.time(), time.monotonic()
        conflicts = _enter_work(of_script)
        role_node = roles.join(os.environ, name, folder, variables.first_rank())
        command = torchrun_command([*arguments, *_restart_words(of_script)])
        own_library = script_verdict.own_library(arguments[1:]) if is_script and variables.place() == 0 else ""
        if folder:
            _tell_up(folder, name)
            waiting_node.until_start(os.environ, own, folder, name)
        if role_node:
            role_node.begin()
        plan = min_nodes.take_plan(os.environ)
        given = {**os.environ, **handover.put_files(os.environ, secrets)}
        given |= {**caches.variables(given), **style.cpu_variables(given)} if is_script else {}
        environment = torchrun_environment(given, name, plan)
        member = None if plan else all_nodes.join(environment)
    except waiting_node.Ends as early:
        print(f"{early.verdict.verdict}: {early.verdict.message}", file=sys.stderr)
        return end.publish_verdict(early.verdict)
    except (TrainError, OSError) as fault:
        return _refused(fault, role_node, name, end)
    with _private_folder(folder, name) as outcome, all_nodes.reporting(member, outcome):
        hidden = handover.secret_values(os.environ, secrets)
        diary = Diary(folder, name, outcome, variables.event_file_of(plan, name, variables.ranks(environment)), hidden)
        if conflicts:
            diary.report_conflicts(variables.first_rank(), conflicts)
        if own_library:
            diary.event("own_library", variables.first_rank(), path=own_library)
        limit = Limit(folder, name, os.environ)
        agreed = min_nodes.join(plan, name, folder, os.environ, outcome, is_script)
        if agreed and agreed.is_arbiter:
            return _vote(agreed, end)
        node = Node(command, environment, outcome, diary, limit, is_script, hidden, agreed, member)
        node.role_node = role_node
        with telemetry.run_telemetry(folder, name, packages=is_script and variables.place() == 0, hidden=hidden):
            code = node.run()
        began = min(began, time.time() - time.monotonic() + ticks)  # if the clock was set back: files' times follow it
        _report_written_files(of_script, diary, began)
        if agreed and agreed.has_left:  # the run has not ended, and this node may be started again
            agreed.linger()
            print(f"muster: {name} has left the run, which continues on {', '.join(agreed.epoch.members)}", flush=True)
            return DONE
        silent = is_script and not (node.judged or node.is_released)
        verdict = _verdict_on(arguments[1:], node, code, began) if silent else None
        if role_node and not node.leaves:
            verdict = role_node.settle(verdict, code, node.is_released)
        is_kept = not verdict or publish(verdict, folder, f"{name}-agent", outcome)
        for each in (verdict,) if verdict else node.verdicts() if is_script else ():
            if each.code and not (is_kept and RESUME in os.environ):  # with `srun muster agent` nothing else prints it
                print(f"{each.verdict}: {each.message}" + f"\nhint: {each.hint}" * bool(each.hint), file=sys.stderr)
        if not is_kept:
            print(f"error: the disk of {folder} is full", file=sys.stderr)
        code = verdict.code if verdict else code
        if verdict or node.judged or code in (DONE, STOPPED) or (agreed and agreed.epoch.over is not None):
            end.keep_code(code)
            if agreed:
                agreed.end_run(code)
    return code


def _tell_up(folder: Path, name: str) -> None:
    """Write a file that tells the control side that this node is up."""
    here = {"node": name, "pid": os.getpid(), "host": socket.gethostname(), "t": time.time()}
    here |= meeting.own_address(os.environ.get("PET_RDZV_ENDPOINT", ""))
    replace(folder / "nodes" / f"{name}.json", json.dumps(here))


def _vote(agreed: min_nodes.Group, end: FinalEnd) -> int:
    """Act as the arbiter until the run is over."""
    code = arbiter.vote(agreed, os.environ.get("MUSTER_RESTARTED_BY_HOST") == "1")
    if agreed.epoch.over is not None or code == STOPPED:
        end.keep_code(code)
        agreed.end_run(code)
    return code


def _enter_work(folder: Path | None) -> list[str]:
    """Put the sent files into the run's work folder, change to it, and set HOME; without sent files, stay here.

    Returns the paths where the script's own file is kept and the sent file is not used. `folder`: the run folder, if
    the run is that of a script. Raises Refused if Muster's own code, or a sent file, is not what the control side sent.
    """
    work.refuse_other(Path(muster.__file__).parents[1], os.environ.get("MUSTER_CODE_DIGEST", ""))
    sent = os.environ.get("MUSTER_SENT")
    if not folder or not sent:
        return []
    conflicts = work.prepare(folder, Path(sent), os.environ.get("MUSTER_SENT_DIGEST", ""))
    os.environ["HOME"] = str(folder / work.HOME)
    os.chdir(folder / work.WORK)
    return conflicts


def _restart_words(folder: Path | None) -> list[str]:
    """The additional arguments of a script that starts again; none if the run folder shows no earlier start."""
    again = folder and (folder / "ranks" / f"rank-{variables.first_rank()}.jsonl").exists()
    return shlex.split(os.environ.pop(command.AGAIN, "")) if again else []


def _report_written_files(folder: Path | None, diary: Diary, began: float) -> None:
    """Report how much the script wrote, and save what it wrote into a folder of the image.

    `folder`: the run folder, if the run is that of a script.
    """
    if folder is None:
        return
    try:
        if os.environ.get("MUSTER_SAVE_CHANGES") == "1" and Path.cwd() != Path("/"):
            work.save_changes(folder, Path.cwd(), began)
        contained = folder.is_mount()  # otherwise every path is on this machine's own disk, and stays there
        elsewhere = outside_files.find(began, folder) if contained else ()
        diary.report_written_files(variables.first_rank(), work.count_written(folder), elsewhere)
    except OSError as fault:
        print(f"{diary.node}: could not count the files that the script wrote: {fault}", file=sys.stderr)


def _verdict_on(arguments: Sequence[str], node: Node, code: int, began: float) -> Verdict | None:
    """Return how the user's script ended on this node, and at which step; None if only another node can know."""
    verdict = _how_ended(arguments, node, code)
    return verdict and dataclasses.replace(
        verdict, step=reached_step.slowest_step(node.diary.run_folder, node.diary.node, began)
    )


def _how_ended(arguments: Sequence[str], node: Node, code: int) -> Verdict | None:
    first, name = variables.first_rank(), node.diary.node
    what = script_verdict.name_of(arguments)
    if code == DONE:
        return _verdict_on_end(what, arguments, node)
    if code == STOPPED:
        why, after = node.limit.words if node.limit.reached else "was asked to stop", observe_stop(node)
        words = stop_words.how_it_stopped(f"{what} {why}", after, nodes=os.environ.get("PET_NNODES", "1") != "1")
        if after.unsaved:
            return Verdict("failed", FAILED, first, name, 0, words, since=node.asked_at, cause="exception")
        return Verdict(
            "stopped", STOPPED, first, name, 0, words, cause="" if node.limit.reached else "ended-from-outside"
        )
    culprit = None if node.leaves else node.diary.culprit
    if not culprit:
        # This node's ranks may have ended well in a world of their own, because the other nodes joined too late.
        well = bool(node.diary.lives) and all(life.code == DONE for life in node.diary.lives)
        verdict = _verdict_on_end(what, arguments, node) if well else None
        return verdict if verdict and verdict.code != DONE else None
    own_library = script_verdict.own_library(arguments)
    return script_verdict.why_failed(
        culprit.last_words, culprit.how, what, name, culprit.life, own_library, culprit.cause
    )


def observe_stop(node: Node) -> stop_words.AfterStop:
    """What happened on this node after it was asked to stop."""
    folder, errors, lives = node.diary.run_folder, dict[int, str](), node.diary.lives
    # A rank that fails after another one may only have lost that one as a peer. So only the first failure counts, and
    # only if all ranks are on this node: otherwise a rank of another node may have failed first.
    first = node.diary.first_failure
    whole = all(life.world == len(lives) for life in lives)
    for failure in node.diary.failures if whole else ():
        if node.asked_at <= failure.life.ended <= first and not failure.last_words.victim:
            errors |= {failure.life.rank: failure.last_words.error} if failure.last_words.error else {}
    files = map(node.diary.shown, work.written_since(folder, node.asked_at) if folder else [])
    return stop_words.AfterStop(tuple(node.diary.killed_by_stop or ()), node.grace, errors, tuple(files))


def _verdict_on_end(what: str, words: Sequence[str], node: Node) -> Verdict:
    """The verdict on a script that ended with 0: it fails if its ranks did not train together with the others."""
    first, name = variables.first_rank(), node.diary.node
    nodes = variables.number(os.environ, "PET_NNODES", 1)
    why = training_alone.why_trained_alone(node.outcome, node.diary.lives, nodes, words)
    if not why or os.environ.get("MUSTER_SEPARATE") == "1":
        if script_below := judge_below.name_of_unknown_end(node.outcome):
            unknown = f"nobody knows how {script_below} ended below {what}: no part of Muster ran inside it"
            hint = f"{unknown} (it may set its own PYTHONPATH); with `set -o pipefail` in {what}, its exit code counts"
            return dataclasses.replace(done(first, name, 0), message=unknown, hint=hint)
        return dataclasses.replace(done(first, name, 0), hint=_idle(what, node))
    hint = training_alone.join_hint(node.outcome, node.diary.lives, words)
    return failed(first, name, 0, TrainError(f"{what} trained alone: {why}", hint), "trained-alone")


def _idle(what: str, node: Node) -> str:
    """A hint if no rank was seen to train; the control side knows whether they wrote files."""
    if not variables.is_observed(os.environ) or not judge_below.nobody_trained(node.outcome):
        return ""
    if any(life.world > 1 for life in node.diary.lives):
        return f"no rank of {what} joined a process group or made a step: did it train? see logs/"
    return f"did {what} train? see logs/"  # the run's last line says that no step was seen, and no file written


def _refused(fault: TrainError | OSError, role_node: roles.RoleNode | None, name: str, end: FinalEnd) -> int:
    """Report that this node does not start, also to the run's other roles. Returns the exit code."""
    known = fault if isinstance(fault, TrainError) else TrainError(f"cannot write the run folder: {fault}")
    known = TrainError(f"{role_node.who}: {known.message}", known.hint, known.code) if role_node else known
    if not isinstance(fault, OSError):
        end.publish_verdict(failed(variables.first_rank(), name, 0, known))
    print(known.report(), file=sys.stderr, flush=True)
    if role_node:
        role_node.settle(None, known.code, False)
    return known.code


def torchrun_command(arguments: Sequence[str]) -> list[str]:
    """The command that starts torchrun for the trainer's ARGS or for `--script SCRIPT ARGS`.

    Raises Refused if the arguments are wrong.
    """
    if arguments[:1] != ["--script"]:
        config.parse(arguments)
        return [sys.executable, "-u", "-P", "-m", f"{NAME}.node.launch.torchrun", "-m", NAME, *arguments]
    words = list(arguments[1:])
    if words[:1] == ["--per-node"] and len(words) > 1:
        if not Path(words[1]).is_file() or not words[1].endswith(".py"):
            command.refuse_missing(words[1:])
        words = [str(Path(__file__).resolve().parents[1] / "launch" / "launcher.py"), *words[1:]]
    if not words:
        raise Refused("no script", "give it after --script: train.py --lr 3e-4")
    if not words[0].startswith("-") and not os.path.isfile(words[0]):  # a Path has no slash at its end
        raise Refused(
            f"no such script: {words[0]} (in {Path.cwd()})", "give its path relative to the folder that was sent"
        )
    # Hence the `--`: torchrun would take an argument of the script for an abbreviation of its own option, such as
    # `--run` for --run-path.
    kind = words[:1] if words[0] in ("-m", "--no-python") else []
    # -P: the user's folder may have a `torch.py`, which torchrun must not import as torch.
    return [sys.executable, "-u", "-P", "-m", f"{NAME}.node.launch.torchrun", *kind, "--", *words[len(kind) :]]


@contextmanager
def _private_folder(run_folder: Path | None, name: str) -> Iterator[Path]:
    """The folder in which this node's ranks leave notes for the agent; it is removed afterwards.

    It is in the run folder, if there is one, so that an agent that is killed leaves nothing in other places.
    """
    if run_folder is None:
        with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
            yield Path(temporary)
        return
    folder = notes.folder_of(run_folder, name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reserve_room(folder)
    (folder / JOURNAL).touch()  # before another user creates it, in order to ask the node to leave
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def torchrun_environment(
    environment: Mapping[str, str], name: str, plan: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """`environment` with all that torchrun needs: the rendezvous as an IP literal, the node's place and its address.

    torch's own torchrun gives rank 0 to the node whose `--local-addr` sorts first as text. For that torchrun, the first
    node passes its IP literal, and the other nodes pass labels, which sort after that literal and in the order of their
    places. Raises TrainError.

    After an NCCL timeout, a rank waits before it ends: four times _DUMP_WAIT, which is one minute by default (torch's
    ProcessGroupNCCL.cpp, Watchdog::runLoop). All ranks that wait for its end would wait as long, so this shortens it.
    """
    made = {_DUMP_WAIT: _DUMP_WAIT_MS, **environment, "MUSTER_NODE": name}
    if plan:  # the nodes agree on which of them has rank 0 (min_nodes.py)
        made.pop("PET_NODE_RANK", None)
        return made | min_nodes.variables(plan, name, variables.ranks(environment))
    endpoint = environment.get("PET_RDZV_ENDPOINT", "")
    if not endpoint:  # a single node: torchrun's own defaults are enough
        return made
    host, _, port = endpoint.rpartition(":")
    if not port.isdecimal():
        raise Refused(f"no port in PET_RDZV_ENDPOINT={endpoint}", f"give one: {endpoint}:29500")
    address = meeting.resolve(host.strip("[]"), _RESOLVE_SECONDS)
    made["PET_RDZV_ENDPOINT"] = meeting.endpoint(address, port)
    nodes = environment.get("PET_NNODES", "1").rpartition(":")[2]
    conf = environment.get("PET_RDZV_CONF", "")
    number = environment.get("PET_NODE_RANK") or "0" * (nodes == "1" or "is_host=1" in conf)
    if not number and "is_host" in conf:  # a scaled worker of compose
        number = "".join(re.findall(r"\d+$", name))
    if number and not (number.isdecimal() and (not nodes.isdecimal() or int(number) < int(nodes))):
        raise Refused(f"{name}: there is no node {number} among {nodes} nodes", "number them from 0: PET_NODE_RANK")
    made |= {"PET_NODE_RANK": str(int(number))} if number else {}
    try:
        own = address if number and int(number) == 0 else meeting.local_address(address, int(port))
    except OSError as fault:
        raise TrainError(f"{name} has no route to {address}: {fault.strerror}", "is its network up?") from fault
    if torch_names.keeps_torch_unchanged(environment):
        made.pop("PET_NODE_RANK", None)
        own = f"node-{int(number):05d}" if number and int(number) else own
    made["PET_LOCAL_ADDR"] = environment.get("PET_LOCAL_ADDR") or own
    return made


if __name__ == "__main__":
    sys.exit(main())
