"""`muster export`: print a run as a file for Slurm's sbatch or for Kubernetes. It starts nothing itself."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import DONE, UsageError
from ..job.load import (
    environment_of,
    gpus_of_each_node,
    read_run,
    read_text,
    read_what_runs,
    refuse_duplicate_targets,
    value_of,
    with_roles_of_file,
)
from ..job.options import FLAG, Options
from ..job.roles.all_roles import first_of
from ..job.roles.role import MAIN
from ..job.script import PER_NODE, split_words
from ..job.script_file import file_of, refuse_missing
from ..job.secrets import refuse_open_secrets
from ..job.together import refuse_pairs
from ..report.console import Console
from ..run import environment, roles, sbatch_options
from ..run.sbatch import SlurmJob, batch_script
from ..send.folder.content import WORKSPACE
from ..send.image.model import slug
from . import pods
from .planned import agent_of, mounts_of, planned

# The job's name if it runs Muster's own trainer.
_TRAINER = "muster-trainer"
SBATCH, _RANKS = "sbatch", "PET_NPROC_PER_NODE"
# How long the pods of a run may take to start: the cluster places them one by one, and each first pulls its image.
_PODS_WITHIN_S = 3600
# Each pod has its own address, so the ports of roles can be fixed: there is no need to look for free ones.
_ROLES_PORT, _FREE_PORTS = 29600, range(29700, 29800)


def export(options: Options, console: Console) -> int:
    """Print the file. Raises UsageError for an option that is not allowed here."""
    options = with_roles_of_file(options)
    to = read_text("to", options.to or SBATCH)
    refuse_pairs("export", options)
    refuse_open_secrets(options, {})
    words, own = planned(replace(options, run=""))
    own = {**own, **environment_of(options)}
    asked, count, gpus = read_run(options.run), read_text("nodes", options.nodes or "1"), gpus_of_each_node(options)
    name, made_by = asked or _name(words), shlex.join(["muster", *sys.argv[1:]])
    if to != SBATCH:
        made = _pods(options, words, own, name, count, gpus)
        print(pods.manifest(to, replace(made, made_by=made_by)), end="")
        return DONE
    container = value_of(options, "container") or ""
    sbatch = _sbatch_options(options.slurm, gpus, words)
    job = SlurmJob(
        name,
        count,
        agent_of(options, words),
        own,
        sbatch,
        gpus,
        options.setup,
        container,
        options.image,
        mounts_of(options),
        run=asked,
        made_by=made_by,
    )
    print(batch_script(job), end="")
    if few := sbatch_options.note_of_cpus(FLAG.slurm, sbatch):
        console.note(few)
    return DONE


def _pods(
    options: Options, words: Sequence[str], own: Mapping[str, str], name: str, nodes: int, gpus: int
) -> pods.PodSet:
    """Return the pods to request from a cluster. Raises UsageError."""
    acted = roles.read(read_what_runs(options), ())
    name = pods.name_of(name, [each.role.name for each in acted])
    if acted:
        of_script = nodes if options.script or options.each else 0
        groups, main = _of_roles(name, acted, of_script, gpus), first_of([each.role for each in acted]).name
    else:
        ranks, restarts = int(own.get(_RANKS) or gpus or 1), environment.restarts_of(own)
        groups, main = (pods.Group(tuple(words), nodes, ranks, gpus, restarts),), pods.ONLY
    mounts = refuse_duplicate_targets(value_of(options, "mount"))
    for group in groups:
        _refuse_unsent(group.words, [mount.target for mount in mounts])
    # Each role defines its own number of ranks, and whether it is a single rank without torchrun.
    of_one = (_RANKS, environment.BARE_RANK) if acted else (_RANKS,)
    return pods.PodSet(
        name,
        options.image,
        groups,
        main,
        variables={name: value for name, value in own.items() if name not in of_one},
        secrets=pods.secrets_of(options.secret),
        mounts=mounts,
        claim=pods.object_of(FLAG.shared, options.shared) if options.shared else "",
        sent=words[:1] == (environment.SCRIPT,),
    )


def _of_roles(run: str, acted: Sequence[roles.PlannedRole], nodes: int, gpus: int) -> tuple[pods.Group, ...]:
    """Return the pods of each role. `nodes`: those of a script in addition to the roles (0: there is no script).

    `gpus`: the number of GPUs for a role that does not set it.
    """
    acted = roles.with_ports(acted, iter(_FREE_PORTS))
    given = {MAIN: nodes} if nodes else {}
    acted = [replace(each, role=replace(each.role, nodes=given.get(each.role.name, each.role.nodes))) for each in acted]
    groups, where = list[pods.Group](), list[roles.NodeAddress]()
    for each in acted:
        role, own_gpus = each.role, gpus if each.role.gpus < 0 else each.role.gpus
        where += [
            roles.NodeAddress(node, pods.pod_name(run, role.name, index), _ROLES_PORT, own_gpus)
            for index, node in enumerate(each.nodes)
        ]
        own = {environment.MAX_RESTARTS_NAME: str(each.restarts)}
        own |= {environment.BARE_RANK: "1"} if each.bare else {}
        words = (environment.SCRIPT, *each.words)
        ranks = each.ranks_on(own_gpus)
        groups.append(pods.Group(words, role.nodes, ranks, own_gpus, each.restarts, role.name, role.separate, own))
    # The roles' key is not among the variables: a Secret of the cluster has it.
    known = roles.variables(acted, where, "", within=_PODS_WITHIN_S)
    return tuple(replace(each, variables={**each.variables, **known, roles.ROLE: each.name}) for each in groups)


def _name(words: Sequence[str]) -> str:
    """Return the job's name: the script's name, or _TRAINER for Muster's own trainer."""
    if words[:1] != (environment.SCRIPT,):
        return _TRAINER
    return slug(environment.script_name([word for word in words[1:] if word != PER_NODE]))


def _sbatch_options(slurm: str, gpus: int, words: Sequence[str]) -> tuple[str, ...]:
    """Return the options in --slurm. Raises UsageError for options that Muster refuses, and for a missing script."""
    options = split_words(FLAG.slurm, slurm)
    sbatch_options.refuse(FLAG.slurm, options, gpus)
    if not sbatch_options.names_of(options) & {"--chdir", "-D"}:  # with these, the job runs in another folder
        _refuse_absent(words)
    return options


def _refuse_absent(words: Sequence[str]) -> None:
    """Raise UsageError if the script is not in the current folder, in which the job will run too."""
    path = file_of(words[1:]) if words[:1] == (environment.SCRIPT,) else ""
    if path and not Path(path).is_file():
        refuse_missing(path, Path(), "run this command in the job's folder, where the script is")


def _refuse_unsent(words: Sequence[str], targets: Sequence[str]) -> None:
    """Raise UsageError for a script that no pod has: it is neither in this folder nor in a mount."""
    path = file_of(words[1:]) if words[:1] == (environment.SCRIPT,) else ""
    if any(Path(path).is_relative_to(target) for target in targets):
        return
    _refuse_absent(words)
    if path.startswith(("/", f"{os.pardir}/")):
        where = f"it is outside {Path().resolve()}, the folder that the image holds as {WORKSPACE}"
        raise UsageError(f"{path}: {where}", f"cd {shlex.quote(os.path.dirname(path))}, then the same again")
