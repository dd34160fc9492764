"""What people type in front of a script's command: what of it Muster follows, leaves out, or refuses, and why.

The same of what a script's own text gives to Slurm.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NoReturn

from ..core.program import COMMAND
from .options import FLAG

# They keep a program that loses its terminal.
TERMINALS = ("nohup", "setsid", "screen", "tmux")
# In front of a launcher or a script: what they do is Muster's work, or the image's.
RUNNERS = {
    "srun": "Muster starts the ranks itself, without Slurm",
    "sbatch": "Muster writes the Slurm job itself; give it what the job's srun starts",
    **dict.fromkeys(("mpirun", "mpiexec"), "Muster starts the ranks itself, without MPI"),
    **dict.fromkeys(("composer", "torchx", "colossalai"), "Muster starts the ranks itself"),
    **dict.fromkeys(
        ("lightning", "fabric"), "Muster starts the ranks itself; Fabric() gets its settings from variables"
    ),
    **dict.fromkeys(
        ("uv", "uvx", "poetry", "pipenv", "conda", "pdm", "hatch", "pixi"),
        "Muster installs the folder's packages itself",
    ),
    **dict.fromkeys(TERMINALS, "a run continues without its terminal anyway"),
    **dict.fromkeys(("nice", "numactl", "taskset"), "it would not apply to the ranks, because Muster starts them"),
    **dict.fromkeys(
        ("docker", "podman", "apptainer", "singularity"),
        f"the run is in a container anyway; {FLAG.image} chooses its image",
    ),
    "sudo": "Muster chooses the user of a run",
    "env": f"give the run its variables with {FLAG.env} NAME=VALUE",
    "time": "the run's page says how long it took",
    "stdbuf": "Muster starts Python unbuffered",
    "exec": "Muster does not run this command in a shell",
    **dict.fromkeys(("ssh", "pdsh", "pssh", "clush"), f"{FLAG.hosts} says where the run goes"),
    "rye": "a run uses the packages of its image",
}
# Of these, the next word is a command already.
BEFORE_ANY = ("nohup", "time", "nice", "setsid", "exec", "sudo", "env")
# Of launchers that start ranks: the style whose variables their scripts read, and how they count ranks.
_STYLES = {"mpirun": "mpi", "mpiexec": "mpi", "srun": "slurm"}
_PER_NODE = ("--ntasks-per-node", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost")
_OF_MPI, _OF_SLURM = ("-np", "--np", "-n", "--n", "-c"), ("-n", "--ntasks")
_NODES = ("-N", "--nodes")
# Options of `fabric run`, and the variables as which lightning/fabric/cli.py (2.6) hands them to the script.
_OF_FABRIC = {
    "--accelerator": "LT_ACCELERATOR",
    "--strategy": "LT_STRATEGY",
    "--devices": "LT_DEVICES",
    "--num-nodes": "LT_NUM_NODES",
    "--precision": "LT_PRECISION",
}


def instead(runner: str, words: Sequence[str]) -> tuple[str, str]:
    """Muster's options that do what a launcher's `words` do, in front of the script's command, and a word about them.

    Both are empty where there are none.
    """
    style = _STYLES.get(runner)
    if runner in ("fabric", "lightning") and COMMAND in ("up", "deploy"):
        return _of_fabric(words), ""
    if style is None:
        return "", ""
    nodes = _number(words, _NODES) if style == "slurm" else 0
    per_node, ranks = _number(words, _PER_NODE), _number(words, _OF_SLURM if style == "slurm" else _OF_MPI)
    count = per_node or ranks // max(nodes, 1)
    options = [f"{FLAG.nproc} {count}"] if count else []
    if COMMAND in ("up", "deploy"):
        options.append(f"{FLAG.style} {style}")
    several = COMMAND == "deploy" and count and not (per_node or nodes)
    return " ".join(options), f"({FLAG.nproc} counts the ranks of each host)" if several else ""


def _of_fabric(words: Sequence[str]) -> str:
    given = {}
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if (name := name.replace("_", "-")) in _OF_FABRIC:
            given[name] = value if equals else following
    count = given.get("--devices", "")
    variables = {"LT_CLI_USED": "1", **{_OF_FABRIC[name]: value for name, value in given.items()}}
    ranks = [f"{FLAG.nproc} {count}"] if count.isdecimal() else []
    return " ".join([*ranks, *(f"{FLAG.env} {shlex.quote(f'{name}={value}')}" for name, value in variables.items())])


def _number(words: Sequence[str], names: Collection[str]) -> int:
    """The number behind one of these options, in any of its spellings (`-n 2`, `-n2`, `--ntasks=2`); 0: not given."""
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name in names and (number := value if equals else following).isdecimal():
            return int(number)
        if (attached := re.fullmatch(r"(-\w)([0-9]+)", word)) and attached[1] in names:
            return int(attached[2])
    return 0


# Options of torchrun that say where the nodes meet, or how ranks are watched over: Muster chooses all of it.
MEETING = (
    *("--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"),
    *("--rdzv-conf", "--local-addr", "--monitor-interval"),
)
REFUSED = {
    "--role": "all ranks here have the same role",
    **dict.fromkeys(
        ("--log-dir", "--redirects", "-r", "--logs-specs"), "each rank's output is in logs/rank-N.log of the run"
    ),
    **dict.fromkeys(("--tee", "-t", "--log-line-prefix-template"), f"{FLAG.rank} all shows the lines of all ranks"),
    **dict.fromkeys(
        ("--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters"),
        f"{FLAG.rank} N shows the lines of one rank",
    ),
    "--start-method": "Muster forks the ranks",
    "--event-log-handler": "Muster writes the events of a run",
    "--numa-binding": "Muster does not bind ranks to memory nodes",
    "--signals-to-handle": "Muster passes signals to the ranks",
    "--shutdown-timeout": "a rank that is asked to end gets 20 s",
}
REFUSED_FLAGS = {
    "--run-path": "name the script itself",
    "--virtual-local-rank": "each rank has its own LOCAL_RANK",
}


class TorchrunWords(argparse.ArgumentParser):
    """torchrun's options, as torch.distributed.run has them (torch 2.8 to 2.15), with both spellings of each."""

    def __init__(self, fail: Callable[[str], NoReturn]) -> None:
        # At first no abbreviations: `train.py --n 3` has a word of the script's, which argparse would call ambiguous.
        super().__init__(add_help=False, allow_abbrev=False)
        self._fail = fail
        self.add_argument("--standalone", action="store_true")
        self.add_argument("--use-env", "--use_env", action="store_true")  # of torch.distributed.launch
        self.add_argument("-m", "--module", action="store_true")
        self.add_argument("--no-python", "--no_python", action="store_true")
        for name in ("--nnodes", "--nproc-per-node", "--max-restarts", *MEETING, *REFUSED):
            self.add_argument(*dict.fromkeys((name, underscored(name))))
        for name in REFUSED_FLAGS:
            self.add_argument(name, underscored(name), action="store_true")
        self.add_argument("script", nargs=argparse.REMAINDER)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; what follows the first word without a dash is the script's."""
        asked, unknown = self.parse_known_args(list(words))
        if unknown:  # the beginning of an option's name, as torchrun takes it
            self.allow_abbrev = True
            asked, unknown = self.parse_known_args(list(words))
        if unknown:
            self.error(f"{unknown[0]} is not one of its options")
        return asked

    def error(self, message: str) -> NoReturn:
        self._fail(message)


def attribute(name: str) -> str:
    """What argparse calls an option."""
    return name.lstrip("-").replace("-", "_")


def underscored(name: str) -> str:
    """The other spelling of an option."""
    return name[:2] + name[2:].replace("-", "_")


# What gives work to Slurm: in a shell script a command, in one of Python's a package that every start imports.
_STARTS = re.compile(r"(?m)^(?:[^#\n]{0,99}[;&|(])?[ \t]*(?:\w+=\S*[ \t]+)?(srun|sbatch)\s")
_SUBMITS = re.compile(r"(?m)^(?:import|from) (submitit)\b")


def of_slurm(name: str, source: str) -> list[str]:
    """A note about a script of this text that gives its work to Slurm: nothing of this run would see that."""
    asks = _SUBMITS if name.endswith(".py") else _STARTS
    why = "Muster starts the ranks itself, without Slurm; give it the script that trains"
    return [f"{name} has {each}: {why}" for each in asks.findall(source)[:1]]
