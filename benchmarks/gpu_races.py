"""Deploys that want GPUs of one machine at the same moment: how often is a GPU given twice?

    python -m benchmarks.gpu_races [--quick]

Each race: three deploys, each wants one to three GPUs, or named ones, or all of four. Some start now or not at all; of
the others (--wait) a node on the host takes its GPUs itself. The decisions, the claims and the start are Muster's own,
with the scripts that hosts run; recorded are nvidia-smi's answers, and the engine is a stand-in that notes which
container has which GPUs. The rival looks, picks free GPUs and starts, as scripts around nvidia-smi do. Races run in
mount namespaces of their own (as root): the claims of a machine lie in its /var/tmp.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from deploy.core.errors import DeployError
from deploy.host import commands, gpu_choice, gpus
from deploy.host.facts import Gpu
from deploy.host.gpu_choice import Choice
from deploy.hosts import places
from deploy.hosts.places import Places
from deploy.job.inventory import Host
from lab import fake_gpus
from tests.hosts import FACTS
from trainer.node import place as node_place
from trainer.node.claims import Claims
from trainer.node.place import Place

WORKERS, DEPLOYS = 4, 3
WISHES: tuple[Any, ...] = (1, 2, 3, (0, 3), (1,), "auto")
ENGINE = """#!/bin/sh
box=${0%/*}/containers
case $1 in
ps) case "$*" in
    *muster.claim*) for each in "$box"/*; do [ ! -e "$each" ] || tail -n 1 "$each"; done ;;
    *--quiet*) ls "$box" ;; esac ;;
inspect) shift 3; for id; do head -n 1 "$box/$id"; done ;;
run)
    for word; do case $word in muster.gpus=*) gpus=${word#*=} ;; muster.run=*) run=${word#*=} ;;
        muster.claim=*) claim=${word#*=} ;; muster.waits=*) waits=${word#*=} ;; esac; done
    printf 'given ["/muster-%s","running","%s","me","%s",null,"%s"]\\n%s Up\\n' \
        "$run" "$run" "$gpus" "$waits" "$claim" >"${0%/*}/new-$run"
    mv "${0%/*}/new-$run" "$box/$run"; echo "$run" ;;
esac
"""


# The agents of this race's containers, by run.
AGENTS: dict[str, Claims] = {}


class Machine:
    """This machine in the place of a host, with what a Places needs of a session."""

    def __init__(self, wish: Any) -> None:
        self.host = Host("machine", "machine", gpus=wish)

    def stream(self, argv: Any) -> Stream:
        return Stream(argv)


class Stream:
    """A command of this machine, with the methods of door/stream.py."""

    def __init__(self, argv: Any) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read_line(self, wait_s: float) -> bytes:
        line = self._process.stdout.readline()
        if not line:
            raise DeployError("the script has ended")
        return line.rstrip(b"\n")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def ours(wish: Any, run: str) -> list[str]:
    """A deploy as Muster does it, every second one with --wait; the GPUs that its container has."""
    if int(run.rpartition("-")[2]) % 2:
        return waits(wish, run)
    known = tuple(Gpu(index, "Fake GPU", 81920, uuid) for index, uuid in enumerate(fake_gpus.UUIDS))
    machine, facts = Machine(wish), {"machine": replace(FACTS, gpus=known)}
    token = os.urandom(8).hex()
    with Places([machine], facts, run, token) as held:  # type: ignore[list-item]
        held.take()
        chosen = [gpu.uuid for gpu in held.narrowed(facts)["machine"].gpus]
        time.sleep(random.uniform(0, 0.02))  # preflight, push
        start(run, chosen, held.names()["machine"], claim_of(run, token, chosen, "runs"))
        return chosen


def waits(wish: Any, run: str) -> list[str]:
    """A node that waits on the host for a moment, and takes its GPUs there."""
    about = claim_of(run, os.urandom(8).hex(), [], "rests")
    start(run, [], "", about)
    asked = list(wish) if isinstance(wish, tuple) else wish
    known = {uuid: index for index, uuid in enumerate(fake_gpus.UUIDS)}
    node = Place({"asked": asked, "gpus": known, "names": [run]}, AGENTS[run])
    for _ in range(3):
        time.sleep(random.uniform(0, 0.02))
        node.answer({"do": "take"})
        if node.answer({"do": "commit"}).get("ready"):
            return list(AGENTS[run].own.gpus)
    node.answer({"do": "rest"})
    raise DeployError("it waits: another has GPU")


def claim_of(run: str, token: str, chosen: list[str], state: str) -> dict[str, Any]:
    """What a node of the run claims on its host."""
    same = {"number": time.time_ns(), "run": run, "user": "me", "control": "here", "waits": False, "whole": False}
    return {**same, "token": token, "gpus": chosen, "state": state, "returns": True}


def looks_first(wish: Any, run: str) -> list[str]:
    """A deploy that looks, picks and starts."""
    here = gpus.parse(subprocess.run(commands.gpus(), capture_output=True, text=True, check=True).stdout.split("\n"))
    choice: Choice = gpu_choice.choose(wish, here, run)
    if choice.taken:
        raise DeployError(choice.taken)
    start(run, [gpu.uuid for gpu in choice.gpus])
    return [gpu.uuid for gpu in choice.gpus]


def start(run: str, chosen: list[str], claim: str = "", about: dict[str, Any] | None = None) -> None:
    """Make the run's container by the script that hosts run; and its agent, as far as it keeps its claim."""
    folder = f"{os.environ['HOME']}/.muster/runs/{run}"
    argv = ["docker", "run", "--label", f"muster.run={run}", "--label", f"muster.gpus={','.join(chosen)}"]
    own, text = "", json.dumps(about or {})
    if about:
        own = f"run-{about['number']}-{about['token']}"
        argv += ["--label", f"muster.claim={about['token']}"]
        argv += ["--label", f"muster.waits={about['token']}"] if about["state"] == "rests" else []
    claimed = commands.OwnClaim(own, text, "image", about["state"] == "rests") if about else commands.NO_CLAIM
    command = commands.start(folder, "", argv, run, new=True, claim=claim, own=claimed)
    done = subprocess.run(command, input=commands.line(b"A=1\n") + b"\n\n", capture_output=True)
    if done.returncode:
        raise DeployError(done.stderr.decode())
    if about:
        time.sleep(random.uniform(0, 0.02))  # the container starts
        (place,) = Path("/var/tmp").glob("muster-claims.*/")
        AGENTS[run] = Claims(text, place / own, place)


def races(count: int, way: Any, box: Path, seed: int) -> dict[str, int]:
    """So many races; how many GPUs were given twice, how many deploys got theirs, and how many were refused."""
    draw, counts = random.Random(seed), {"races": 0, "twice": 0, "started": 0, "refused": 0, "broken": 0}
    for race in range(count):
        given: list[list[str]] = []
        faults: list[str] = []

        threads = [
            threading.Thread(target=_deploy, args=(way, draw.choice(WISHES), f"r{seed}-{race}-{number}", given, faults))
            for number in range(DEPLOYS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        have = [uuid for container in given for uuid in container]
        rows = [json.loads(path.read_text().splitlines()[0][6:]) for path in box.iterdir()]
        on_engine = sum(len(AGENTS[row[2]].own.gpus if row[6] else row[4].split(",")) for row in rows)
        counts["races"] += 1
        counts["twice"] += len(have) - len(set(have))
        counts["started"] += len(given)
        refused = ["has GPU" in fault or "waits there" in fault for fault in faults]
        counts["refused"] += sum(refused)
        counts["broken"] += len(refused) - sum(refused) + (on_engine != len(have))
        for path in box.iterdir():
            path.unlink()
        while AGENTS:
            AGENTS.popitem()[1].leave()
    return counts


def _deploy(way: Any, wish: Any, run: str, given: list[list[str]], faults: list[str]) -> None:
    try:
        given.append(way(wish, run))
    except DeployError as fault:
        faults.append(fault.message)


def worker(count: int, way: str, seed: int) -> None:
    """One mount namespace with races of its own; prints what it counted."""
    home = Path(f"/tmp/home-{seed}")
    (home / "containers").mkdir(parents=True)
    for name, text in (("docker", ENGINE), ("nvidia-smi", fake_gpus.smi())):
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    os.environ.update(HOME=str(home), PATH=f"{home}:{os.environ['PATH']}")
    places._PAUSE_S = 0.05
    node_place.in_use = dict  # there is no driver to ask
    counts = races(count, {"ours": ours, "looks_first": looks_first}[way], home / "containers", seed)
    print(json.dumps(counts))


def together(count: int, way: str) -> dict[str, int]:
    """The races of all workers."""
    line = 'mount -t tmpfs none /tmp && mount -t tmpfs none /var/tmp && exec "$0" -m benchmarks.gpu_races worker "$@"'
    commands_ = [
        ["unshare", "--mount", "sh", "-c", line, sys.executable, str(count // WORKERS), way, str(seed)]
        for seed in range(WORKERS)
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=nodes.HOME) for command in commands_]
    told = [json.loads(process.communicate()[0]) for process in running]
    return {name: sum(counts[name] for counts in told) for name in told[0]}


def measure(quick: bool) -> dict[str, Any]:
    """How many GPUs were given twice, by Muster and by the rival."""
    count = 40 if quick else 1000
    muster, rival = together(count, "ours"), together(min(count, 200), "looks_first")
    rows = [
        Row(
            f"GPUs given twice, {muster['races']:,} races of {DEPLOYS} deploys",
            str(muster["twice"]),
            f"look, pick, start: {rival['twice']} in {rival['races']} races",
            "",
            "0",
            muster["twice"] == 0 and muster["races"] == count and not muster["broken"],
        )
    ]
    notes = [
        f"Muster: {muster['started']} deploys got GPUs, {muster['refused']} were refused, {muster['broken']} broke"
    ]
    return result(rows, notes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        alone(measure, __doc__)
