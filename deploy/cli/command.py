"""`@command`: a fab task whose --help shows an example, the defaults and the exit codes, in one form for all.

invoke prints a task's docstring above its options: `command` writes the example and the codes into it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fabric import task
from fabric.tasks import Task
from invoke.parser.argument import Argument

from ..config import consent
from ..core.errors import DONE, FAILED, STOPPED, USAGE
from ..core.program import FAB
from ..report.console import Console

# The meaning of a code if the command gives none of its own. Every command can end with each of these.
MEANINGS = {
    DONE: "done",
    FAILED: "something failed: the error names it, and the host",
    USAGE: "an option or a file was refused: nothing was changed",
    STOPPED: "stopped by Ctrl-C",
}
_WIDTH = 76  # of 80 columns, less invoke's own indent

# Options that several commands have. Of --allow-folder `Command` takes care.
_ALLOW = "allow-folder"
ALLOW = {
    _ALLOW: "allow what the folder's files ask for, such as hosts, secrets and mounts, without a question; this "
    "is kept like an answer"
}
HOSTS = {
    "hosts": "where: user@a:port,b (default: the hosts of cluster.toml)",
    "cluster": "a file like cluster.toml (default: cluster.toml in this folder, if there is one)",
    **ALLOW,
}
# Of commands that find the hosts of a run in its record (hosts/recorded.py).
RECORDED = {
    **HOSTS,
    "hosts": "where: user@a:port,b (default: the hosts of cluster.toml, else those of the run's record here)",
    "run": "the run's id, or latest (default: the only run that is going on; without hosts, the latest on hosts)",
}
JSON = {"json": "write JSON lines to standard output"}
GPUS = (
    "GPUs of each host, or of this machine: auto (all), how many free ones (2; 0 for none), or which (0,3; one alone: "
    "3,) (default: auto)"
)
MAX_HOURS = (
    "stop the run in an orderly way, with a checkpoint, after so many hours (2.5); it ends as stopped (default: none)"
)
WAIT_LOST = (
    "how long the run waits for a host that is lost, or a link that is cut, before it ends: 90s, 10m, 1h (default: 10m)"
)
MIN_NODES = (
    "continue while this many nodes are left, whichever are lost; it must be more than half of them (default: all are "
    "needed)"
)
SPARE = (
    "hosts that are prepared like the others, and wait; with --min-nodes, one of them takes the place of a lost host "
    "(default: none)"
)
ARBITER = (
    "a host that votes on who trains, but does not train: with --min-nodes, one of two hosts, or two of four, can then "
    "continue alone (default: none)"
)
OVERLAY = (
    "make an encrypted network for this run, if none connects all hosts: over one UDP port, and through a third "
    "host where two do not reach each other"
)
ON_END = (
    "a command to run once in the run's image after the run's end, whatever the end; it gets MUSTER_END and more; or "
    "a URL that gets a JSON POST (default: none)"
)
EACH = (
    "a command that runs once on each node and starts its ranks itself, as mp.spawn does, with {node_rank}, {nodes}, "
    "{ranks}, {master} and {port} (default: none)"
)
STYLE = (
    "slurm or mpi: give each rank also SLURM_PROCID or OMPI_COMM_WORLD_RANK and their like, for a script that reads "
    "those (default: torchrun's variables alone)"
)
SCRIPT = (
    'your script and its arguments, as you type it: "train.py --lr 3e-4", "torchrun ...", "bash run.sh" (default: '
    "none; --args asks for Muster's own trainer)"
)
NPROC = "ranks of each node: auto (one for each GPU, or one) or a number (default: auto)"
SEPARATE = "let each rank train alone on purpose: without this, ranks that train alone count as failed"
UNWATCHED = "do not watch the script from inside its ranks: no steps, no loss, no stacks"
KEEP = (
    "a path in the container that is kept with the run, as the script's folder and home are; repeatable (default: none)"
)
RESTARTS = (
    "how often a script that fails or is killed is started again, with the files that it wrote (default: 0, because "
    "only a script that finds its own checkpoint continues)"
)
SHOWN = "whose output to show: a rank's number, several with commas, or all (default: 0)"
INCLUDE = (
    "send this file although .gitignore names it or it looks like a credential; repeatable, several with commas "
    "(default: none)"
)
LIMIT = "the most that the folder may have, such as 4g (default: 256m, because more is usually data, for --mount)"
REQUIREMENTS = (
    "install the packages of this file of the folder first: a requirements.txt, pyproject.toml or uv.lock; no: install "
    "none (default: the one in the folder, if there is one)"
)
ENV_FILE = (
    "a file such as .env, whose variables the ranks get; each value counts as a secret; repeatable (default: none)"
)
NO_CACHE = "keep no downloads and compiled kernels for the next run"
SECRET_FILE = (
    "a file of this machine that the ranks find as /run/secrets/NAME, in memory: NAME=FILE; repeatable (default: none)"
)
SECRET = (
    "a variable from this shell (NAME) or from a file (NAME=FILE), never shown on a host; repeatable (default: none)"
)


def split(given: Sequence[str] | None) -> tuple[str, ...]:
    """The values of a repeatable option that also takes several with commas."""
    return tuple(part for text in given or () for part in text.split(",") if part)


class Command(Task):  # type: ignore[misc]
    """A task whose help leaves out the `hidden` options, which exist only to be refused.

    It opens the door to what a folder asks for (config/consent.py), and has --allow-folder where its help names it.
    """

    hidden: Collection[str] = ()
    help: dict[str, Any]

    def __call__(self, *args: Any, allow_folder: bool = False, **given: Any) -> Any:
        """Do the task's work."""
        typed = sys.argv[2:] if sys.argv[1:2] == [self.name] else []
        how = shlex.join([*FAB.split(), self.name, "--allow-folder", *typed])
        with consent.asking(consent.Door(lambda: self.asker(bool(given.get("json"))), allow_folder, how)):
            return super().__call__(*args, **given)

    def asker(self, as_json: bool) -> Console:
        """Where the door shows and asks."""
        return Console(as_json)

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The options of the command line; for --help, only those that a user may give."""
        help = dict(self.help)
        allow = self.help.pop(_ALLOW, "")
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        if allow:
            arguments.append(Argument(names=(_ALLOW,), attr_name="allow_folder", kind=bool, default=False, help=allow))
        self.help = help  # invoke removes an option from this list once it has shown it
        if not {"--help", "-h"} & set(sys.argv[1:]):
            return arguments
        for argument in arguments:
            if argument.positional:
                argument.default = ""  # else invoke asks for the word before it shows the help
        return [argument for argument in arguments if str(argument.name).replace("_", "-") not in self.hidden]


def command(
    example: str | Sequence[str],
    codes: Mapping[int, str],
    help: Mapping[str, str],
    hidden: Collection[str] = (),
    klass: type[Command] = Command,
    **more: Any,
) -> Callable[[Callable[..., None]], Command]:
    """Make a function a task. `codes`: what its exit codes mean, if MEANINGS does not say it.

    Options have no one-letter forms: invoke would assign letters by the order of the parameters, so a new option would
    change the meaning of an old letter.
    """
    examples = [example] if isinstance(example, str) else example

    def made(body: Callable[..., None]) -> Command:
        body.__doc__ = _doc(body.__doc__ or "", examples, {**MEANINGS, **codes})
        made_task: Command = task(klass=klass, help=dict(help), auto_shortflags=False, **more)(body)
        made_task.hidden = hidden
        return made_task

    return made


def _doc(doc: str, examples: Sequence[str], codes: Mapping[int, str]) -> str:
    """The docstring with the example and the exit codes below it."""
    shown = [f"  {example}" for example in examples]
    ends = [
        textwrap.fill(
            meaning, _WIDTH, initial_indent=f"  {code:>2}  ", subsequent_indent=" " * 6, break_on_hyphens=False
        )
        for code, meaning in sorted(codes.items())
    ]
    doc = re.sub(r"\bfab (?=[a-z])", f"{FAB} ", inspect.cleandoc(doc))
    return "\n".join([doc, "", "Example:", *shown, "", "Exit codes:", *ends])
