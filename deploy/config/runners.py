"""What people type in front of a script's command: why Muster refuses it, and which options do the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from ..core.program import COMMAND

# In front of a launcher or a script: what they do is Muster's work, or the image's.
RUNNERS = {
    "srun": "Muster starts the ranks itself, without Slurm",
    "mpirun": "Muster starts the ranks itself, without MPI",
    "mpiexec": "Muster starts the ranks itself, without MPI",
    "lightning": "Muster starts the ranks itself; the script says Trainer(num_nodes=N), or Fabric(num_nodes=N)",
    "fabric": "Muster starts the ranks itself; the script says Trainer(num_nodes=N), or Fabric(num_nodes=N)",
    "nohup": "a run goes on without its terminal anyway",
    "uv": "Muster installs the folder's packages itself",
    "poetry": "Muster installs the folder's packages itself",
    "pipenv": "Muster installs the folder's packages itself",
    "conda": "Muster installs the folder's packages itself",
    "sudo": "a run's user is chosen by Muster",
    "env": "a run's variables are given by --env NAME=VALUE",
    "pdm": "Muster installs the folder's packages itself",
    "hatch": "Muster installs the folder's packages itself",
    "pixi": "Muster installs the folder's packages itself",
    "time": "the run's page says how long it took",
    "nice": "it would not reach the ranks, which Muster starts",
    "numactl": "it would not reach the ranks, which Muster starts",
    "taskset": "it would not reach the ranks, which Muster starts",
    "stdbuf": "Python is started unbuffered",
    "exec": "no shell reads this command",
    "setsid": "a run goes on without its terminal anyway",
    "screen": "a run goes on without its terminal anyway",
    "tmux": "a run goes on without its terminal anyway",
    "docker": "a run is in a container anyway; --image names its image",
    "podman": "a run is in a container anyway; --image names its image",
    "ssh": "--hosts says where a run is",
    "rye": "a run has the packages of its image",
}
# Of these, the next word is a command already.
BEFORE_ANY = ("nohup", "time", "nice", "setsid", "exec", "sudo", "env")
# Of launchers that start ranks: the style whose variables their scripts read, and how they count ranks.
_STYLES = {"mpirun": "mpi", "mpiexec": "mpi", "srun": "slurm"}
_PER_NODE = ("--ntasks-per-node", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost")
_OF_MPI, _OF_SLURM = ("-np", "--np", "-n", "--n", "-c"), ("-n", "--ntasks")
_NODES = ("-N", "--nodes")


def instead(runner: str, words: Sequence[str]) -> tuple[str, str]:
    """Muster's options that do what a launcher's `words` do, in front of the script's command, and a word about them.

    Both are empty where there are none.
    """
    style = _STYLES.get(runner)
    if style is None:
        return "", ""
    nodes = _number(words, _NODES) if style == "slurm" else 0
    per_node, ranks = _number(words, _PER_NODE), _number(words, _OF_SLURM if style == "slurm" else _OF_MPI)
    count = per_node or ranks // max(nodes, 1)
    options = [f"--nproc {count}"] if count else []
    if COMMAND in ("up", "deploy"):
        options.append(f"--style {style}")
    several = COMMAND == "deploy" and count and not (per_node or nodes)
    return " ".join(options), "(--nproc counts the ranks of each host)" if several else ""


def _number(words: Sequence[str], names: Collection[str]) -> int:
    """The number behind one of these options, in any of its spellings (`-n 2`, `-n2`, `--ntasks=2`); 0: not given."""
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name in names and (number := value if equals else following).isdecimal():
            return int(number)
        if (attached := re.fullmatch(r"(-\w)([0-9]+)", word)) and attached[1] in names:
            return int(attached[2])
    return 0
