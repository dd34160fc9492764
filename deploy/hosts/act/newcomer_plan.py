"""Reads a running node's container, and derives the node of a host that joins the run (newcomer.py). Pure.

The newcomer runs the command that this machine recorded: a host of the run decides neither its arguments nor variables
that are not the run's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ...core.errors import BadAnswer, UsageError
from ...core.fields import address, array, flag, json_object, record, row, table, text, whole
from ...core.names import NODE_PROGRAMS, node_name
from ...core.text import listed
from ...job.option_words import command_of, read_again
from ...job.options import Job, Options, flag_of
from ...run.environment import CLAIM, GROUP, MUSTER_NAMES, ON_END, SENT
from ..node.container import NodeContainer

# Options whose effect on a node cannot be read from the record, or that a newcomer would lack.
_REFUSED = ("secret", "secret_file", "env_file", "mount", "data", "keep", "overlay", "on_end")
_REPEATED = ("image", "folder", "nproc", "gpus", "include", "folder_limit", "env", "restarts", "requirements")
_HOSTS_OWN = (
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "MUSTER_NODE",
    CLAIM,
    SENT,
)
RANKS = "PET_NPROC_PER_NODE"
# What a node's code consists of.
CODE = ("the image", "the folder", "Muster itself", "the packages")
_MOST = 1024
_PORT, _PLACE = whole(65535), whole(1 << 20)
_PLAN = record(
    {
        "least": whole(_MOST, least=1),
        "key": text(200, r"[A-Za-z0-9_-]+"),
        "nodes": table(node_name, row(address, _PORT, _PORT), _MOST),
    },
    {
        "apart": flag,
        "spares": array(node_name, _MOST),
        "arbiter": node_name,
        "joined": table(node_name, row(address, _PORT, _PLACE), _MOST),
    },
)
_CONFIG = record(
    {
        "Env": array(text(1 << 20), 10_000),
        "Cmd": array(text(1 << 16), 10_000),
        "Labels": record({"muster.start": text(200)}),
    }
)


@dataclass(frozen=True)
class Template:
    """What a running node has: variables, `words` (the agent's arguments), the run's plan, and this start's token."""

    variables: Mapping[str, str]
    words: tuple[str, ...]
    plan: Mapping[str, Any]
    token: str


def is_of_run(name: str) -> bool:
    """Whether a variable with one of Muster's names belongs to the run. A newcomer takes no other such variable."""
    return name in MUSTER_NAMES and name != ON_END


def refuse_other_arguments(run: str, theirs: Sequence[str], recorded: Sequence[str] | None) -> None:
    """Raise UsageError if the command of the run's node differs from the one that this machine recorded. Pure."""
    if recorded is None or list(theirs) != list(recorded):
        ours = "nothing" if recorded is None else shlex.join(recorded)
        raise UsageError(
            f"{run}: its node runs {shlex.join(theirs)[:200]!r}, but this machine has recorded {ours[:200]!r}",
            "run it on the machine where `muster deploy` was typed; never trust a host that runs something else",
        )


def again(text: str) -> Options:
    """The deploy's options, from its record. Raises UsageError for an option that a newcomer cannot have."""
    options = read_again(text)
    if name := next((name for name in _REFUSED if getattr(options, name)), ""):
        _refuse(name)
    return Options(**{name: getattr(options, name) for name in _REPEATED})


def refuse_file(job: Job) -> None:
    """Raise UsageError if cluster.toml gives the nodes of a run something that a newcomer would lack."""
    for name, given in (("data", job.data), ("secret", job.secrets), ("overlay", job.overlay)):
        if given:
            _refuse(name)


def _refuse(option: str) -> NoReturn:
    raise UsageError(
        f"a run with {flag_of(option)} cannot take a new host yet",
        "hosts that already belong to the run may leave and join",
    )


def template_of(answer: str) -> Template:
    """Read the output of `docker inspect` for a node's container. Raises BadAnswer."""
    config = _CONFIG(json_object(answer, "a container"), "a container")
    variables = {name: value for name, _, value in (entry.partition("=") for entry in config["Env"])}
    agreed = _PLAN(json_object(variables.pop(GROUP, ""), "the plan of the run"), "the plan of the run")
    command = config["Cmd"]
    if "trainer.node.agent" in command:
        raise UsageError(
            "an older Muster has started the run", "join with that version, or resume the run with this one"
        )
    if RANKS not in variables or NODE_PROGRAMS not in command:
        raise BadAnswer("a node's container", f"{RANKS} and {NODE_PROGRAMS}", None)
    words = tuple(command[command.index(NODE_PROGRAMS) + 2 :])
    return Template(variables, words, agreed, config["Labels"]["muster.start"].rpartition("-")[0])


def planned(template: Template, name: str, address: str, port: int, place: int, made: NodeContainer) -> dict[str, str]:
    """The newcomer's variables: the run's, the host's own, and the plan in which the newcomer is a spare. Pure."""
    agreed = {key: value for key, value in template.plan.items() if key != "joined"}
    known = template.plan.get("joined", {})
    agreed["nodes"] = {node: at for node, at in template.plan["nodes"].items() if node not in known}
    agreed["nodes"][name] = [address, port, port]
    agreed["spares"] = [*(node for node in template.plan.get("spares", ()) if node not in known), name]
    agreed["joined"] = {name: [address, port, place]}
    own = {key: made.environment[key] for key in _HOSTS_OWN if key in made.environment}
    # torchrun reads a PET_* variable for each of its options, including those that start another program.
    ours = {key for key in made.environment if key.startswith("PET_")}
    runs = {key: value for key, value in template.variables.items() if key in ours or is_of_run(key)}
    return {**made.environment, **runs, **own, GROUP: json.dumps(agreed)}


def refuse_other_image(run: str, theirs: Sequence[str | None], ours: Sequence[str | None]) -> None:
    """Raise UsageError if the newcomer would run another image, folder, agent or set of packages. Pure."""
    changed = [what for what, its, own in zip(CODE, theirs, ours, strict=True) if its != own]
    if changed:
        raise UsageError(
            f"{listed(changed)} changed since {run} began: the newcomer would train with other code",
            f"muster stop, then {command_of('deploy', resume=run)} with the new code",
        )
