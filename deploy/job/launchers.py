"""Launchers and other programs that people type in front of a script: which Muster follows, drops or refuses, and why.

It also finds commands in a script's text that hand the work to Slurm.
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

# Programs that keep a command running after its terminal is closed.
TERMINALS = ("nohup", "setsid", "screen", "tmux")
# Programs in front of a launcher or a script, and why Muster refuses them: Muster or the image does their work.
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
# After each of these, the next word is the command already.
BEFORE_ANY = ("nohup", "time", "nice", "setsid", "exec", "sudo", "env")
# For launchers that start ranks: the --style with the variables that their scripts read, and their options for the
# number of ranks.
_STYLES = {"mpirun": "mpi", "mpiexec": "mpi", "srun": "slurm"}
_PER_NODE = ("--ntasks-per-node", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost")
_MPI_RANKS, _SLURM_RANKS = ("-np", "--np", "-n", "--n", "-c"), ("-n", "--ntasks")
_NODES = ("-N", "--nodes")
# Options of `fabric run`, and the variables in which lightning/fabric/cli.py (2.6) passes them to the script.
_FABRIC_VARIABLES = {
    "--accelerator": "LT_ACCELERATOR",
    "--strategy": "LT_STRATEGY",
    "--devices": "LT_DEVICES",
    "--num-nodes": "LT_NUM_NODES",
    "--precision": "LT_PRECISION",
}


def muster_options_for(runner: str, words: Sequence[str]) -> tuple[str, str]:
    """Muster's options that replace a launcher's own `words`, and a note about them; both may be empty."""
    style = _STYLES.get(runner)
    if runner in ("fabric", "lightning") and COMMAND in ("up", "deploy"):
        return _fabric_options(words), ""
    if style is None:
        return "", ""
    nodes = _number(words, _NODES) if style == "slurm" else 0
    per_node, ranks = _number(words, _PER_NODE), _number(words, _SLURM_RANKS if style == "slurm" else _MPI_RANKS)
    count = per_node or ranks // max(nodes, 1)
    options = [f"{FLAG.nproc} {count}"] if count else []
    if COMMAND in ("up", "deploy"):
        options.append(f"{FLAG.style} {style}")
    several = COMMAND == "deploy" and count and not (per_node or nodes)
    return " ".join(options), f"({FLAG.nproc} counts the ranks of each host)" if several else ""


def _fabric_options(words: Sequence[str]) -> str:
    given = {}
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if (name := name.replace("_", "-")) in _FABRIC_VARIABLES:
            given[name] = value if equals else following
    count = given.get("--devices", "")
    variables = {"LT_CLI_USED": "1", **{_FABRIC_VARIABLES[name]: value for name, value in given.items()}}
    ranks = [f"{FLAG.nproc} {count}"] if count.isdecimal() else []
    return " ".join([*ranks, *(f"{FLAG.env} {shlex.quote(f'{name}={value}')}" for name, value in variables.items())])


def _number(words: Sequence[str], names: Collection[str]) -> int:
    """The number that one of these options has, in any spelling (`-n 2`, `-n2`, `--ntasks=2`); 0: not given."""
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name in names and (number := value if equals else following).isdecimal():
            return int(number)
        if (attached := re.fullmatch(r"(-\w)([0-9]+)", word)) and attached[1] in names:
            return int(attached[2])
    return 0


# torchrun's options for the rendezvous and for how it monitors ranks: Muster chooses all of these.
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
    """A parser for torchrun's options, as torch.distributed.run has them (torch 2.8 to 2.15), in both spellings."""

    def __init__(self, fail: Callable[[str], NoReturn]) -> None:
        # At first without abbreviations: in `train.py --n 3`, `--n` is the script's; argparse would call it ambiguous.
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
        """Parse the words; everything after the first word without a dash belongs to the script."""
        asked, unknown = self.parse_known_args(list(words))
        if unknown:  # perhaps an abbreviated option, which torchrun accepts
            self.allow_abbrev = True
            asked, unknown = self.parse_known_args(list(words))
        if unknown:
            self.error(f"{unknown[0]} is not one of its options")
        return asked

    def error(self, message: str) -> NoReturn:
        self._fail(message)


def dest_of(name: str) -> str:
    """The name of the attribute in which argparse stores an option."""
    return name.lstrip("-").replace("-", "_")


def underscored(name: str) -> str:
    """The spelling of an option with underscores."""
    return name[:2] + name[2:].replace("-", "_")


# What hands work to Slurm: a command in a shell script; in a Python script, a package imported at the top level.
_STARTS = re.compile(r"(?m)^(?:[^#\n]{0,99}[;&|(])?[ \t]*(?:\w+=(?:[\"']|\S*[ \t]+))?(srun|sbatch)\s")
_SUBMITS = re.compile(r"(?m)^(?:import|from) (submitit)\b")


def of_slurm(name: str, source: str) -> list[str]:
    """A note, if a script with this text hands its work to Slurm: the run would not notice that work."""
    asks = _SUBMITS if name.endswith(".py") else _STARTS
    why = "Muster starts the ranks itself, without Slurm; give it the script that trains"
    return [f"{name} has {each}: {why}" for each in asks.findall(source)[:1]]
