"""`python launcher.py COMMAND ARGS`: turns a node's only rank into the user's launcher or shell script.

The launcher (`accelerate launch`, `deepspeed`, a shell script) starts this node's ranks itself. It gets the node's
place, the number of nodes and ranks, and the rendezvous: in the variables that launchers agree on, in its own options,
and in braces of the command, such as `{master}`. Nothing listens at that rendezvous yet: epochs.py has picked a free
port for it. A shell script that calls `accelerate launch` or `deepspeed` first finds a stand-in of that name on its
PATH, which adds the same options.

torchrun runs this file by its path, so that no package of the user can hide it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

# The launchers that have options for the place, and the first argument that their stand-ins pass to this file.
_LAUNCHERS, _STAND_IN = ("accelerate", "deepspeed"), "--inside"
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as in muster/errors.py; a file that is run by its path imports nothing of it
_SETTINGS = (".yaml", ".yml", ".json")
# With one of these options, Accelerate knows which devices to use.
_ACCELERATE_KNOWS = ("--cpu", "--tpu", "--multi", "--use_", "--use-", "--config")


@dataclass(frozen=True)
class Place:
    """This node among `nodes`, with `ranks` to start, and the rendezvous."""

    node: int
    nodes: int
    ranks: int
    address: str
    port: int

    def variables(self, one_rank: bool) -> dict[str, str]:
        """The variables that launchers read; torchrun reads those that begin with `PET_` as its options.

        `one_rank`: also a rank's variables, so that each `python train.py` in a shell script is one rank.
        """
        shared = {"NNODES": self.nodes, "NODE_RANK": self.node, "NPROC_PER_NODE": self.ranks}
        meeting = {"MASTER_ADDR": self.address, "MASTER_PORT": self.port}
        rank = {"RANK": self.node, "WORLD_SIZE": self.nodes, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        mine = rank if one_rank else {}
        options = {f"PET_{name}": value for name, value in {**shared, **meeting}.items()}
        return {name: str(value) for name, value in {**shared, **meeting, **mine, **options}.items()}


def main() -> None:
    """Become the command; or act as a launcher's stand-in in a shell script."""
    if sys.argv[1] == _STAND_IN:
        stand_in(*sys.argv[2:])
    given = dict(os.environ)
    place = place_of(given)
    assert place, "the variables of bare.py"
    command, here = fill_in(sys.argv[1:], place), Path(given["MUSTER_OUTCOME_DIR"], f"launchers-{os.getpid()}")
    path = {} if Path(command[0]).name in _LAUNCHERS else stand_ins(here, given)
    become(with_place(command, place, here), {**given, **path})


def stand_in(folder: str, name: str, *words: str) -> None:
    """Become the real launcher of that name, with this node's place. `folder`: of the stand-ins, dropped from PATH."""
    given = dict(os.environ)
    given["PATH"] = os.pathsep.join(each for each in given["PATH"].split(os.pathsep) if each != folder)
    place, command = place_of(given), [name, *words]
    become(with_place(command, place, Path(folder)) if place else command, given)


def place_of(given: Mapping[str, str]) -> Place | None:
    """The place in the variables; None if a shell script has removed one of them."""
    values = [given.get(name, "") for name in ("NODE_RANK", "NNODES", "NPROC_PER_NODE", "MASTER_PORT")]
    if not given.get("MASTER_ADDR") or not all(value.isdecimal() for value in values):
        return None
    node, nodes, ranks, port = map(int, values)
    return Place(node, nodes, ranks, given["MASTER_ADDR"], port)


def stand_ins(here: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Write the stand-ins, and return the PATH on which a shell script finds them first.

    Returns nothing if they cannot be written or executed. Then the script uses the launchers as they are, and its run
    continues.
    """
    try:
        here.mkdir(mode=0o755, exist_ok=True)  # a container that starts again has the same process ids
        for name in _LAUNCHERS:
            if not shutil.which(name, path=given.get("PATH")):
                continue
            words = (sys.executable, str(Path(__file__).resolve()), _STAND_IN, str(here), name)
            (here / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (here / name).chmod(0o755)
            if not os.access(here / name, os.X_OK):  # a disk that is mounted noexec
                return {}
    except OSError as fault:  # a full disk
        print(
            f"muster: accelerate and deepspeed in a shell script are not told their place in the run: {fault}",
            file=sys.stderr,
        )
        return {}
    return {"PATH": os.pathsep.join([str(here), given.get("PATH", os.defpath)])}


def with_place(command: Sequence[str], place: Place, folder: Path) -> list[str]:
    """The command; if it is a launcher with options for the place, with these options filled in."""
    name = Path(command[0]).name
    if name == "accelerate":
        return accelerate(command, place, _has_gpu())
    if name == "deepspeed":
        return deepspeed(command, place, _hostfile(place, folder))
    return list(command)


def become(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the command."""
    try:
        os.execvpe(command[0], command, environment)
    except OSError as fault:
        print(f"error: {command[0]}: {fault.strerror}", file=sys.stderr)
        print("hint: is its package in the image, and is the file executable?", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(fault, FileNotFoundError) else _NOT_EXECUTABLE)


def fill_in(words: Sequence[str], place: Place) -> list[str]:
    """The command with `{node_rank}` and the other braces filled in; a Python file is run by this Python."""
    values = {
        "{node_rank}": place.node,
        "{nodes}": place.nodes,
        "{ranks}": place.ranks,
        "{master}": f"[{place.address}]" if ":" in place.address else place.address,
        "{port}": place.port,
    }
    made = list(words)
    for name, value in values.items():
        made = [word.replace(name, str(value)) for word in made]
    if made[0].endswith(".py"):
        return [sys.executable, *made]
    return [sys.executable, *made[1:]] if made[0] in ("python", "python3") else made


def accelerate(command: Sequence[str], place: Place, gpus: bool) -> list[str]:
    """`accelerate launch` with the place. The user's own options come later, so they win."""
    if list(command[1:2]) != ["launch"]:
        return list(command)
    total = place.nodes * place.ranks
    own = [f"--num_machines={place.nodes}", f"--machine_rank={place.node}", f"--num_processes={total}"]
    own += [f"--main_process_ip={place.address}", f"--main_process_port={place.port}"]
    # With DeepSpeed on several nodes, Accelerate would otherwise start pdsh, which connects to the nodes by SSH.
    own += ["--deepspeed_multinode_launcher=standard"] * (place.nodes > 1)
    # Words after a script or a module belong to it. A settings file is the value of an option, not a script.
    theirs = takewhile(
        lambda word: (
            word.endswith(_SETTINGS) or not (word.endswith(".py") or word in ("-m", "--module") or os.path.isfile(word))
        ),
        command[2:],
    )
    if total > 1 and not any(word.startswith(_ACCELERATE_KNOWS) for word in theirs):
        # Accelerate looks only at its own node: with one GPU on each of two nodes, it assumes a single GPU. Without
        # GPUs, it forms no process group unless an option selects the CPU.
        own += ["--multi_gpu" if gpus else "--cpu"]
    if place.ranks > 1 and not gpus:
        print("muster: without GPUs, Accelerate starts one rank on each node; torchrun can start more", file=sys.stderr)
    return [*command[:2], *own, *command[2:]]


def deepspeed(command: Sequence[str], place: Place, hostfile: str) -> list[str]:
    """`deepspeed` for this node only, without SSH to the other nodes."""
    own = [f"--hostfile={hostfile}", "--no_ssh", f"--node_rank={place.node}"]
    return [*command[:1], *own, f"--master_addr={place.address}", f"--master_port={place.port}", *command[1:]]


def _hostfile(place: Place, folder: Path) -> str:
    """Write DeepSpeed's list of nodes, from which it reads how many nodes there are and how many ranks each has."""
    folder.mkdir(exist_ok=True)
    file = folder / f"hosts-{os.getpid()}"
    file.write_text("".join(f"node-{node} slots={place.ranks}\n" for node in range(place.nodes)))
    return str(file)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
