"""All roles of a run together: which hosts each gets, in which order they start, and what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice

from ...core.errors import UsageError
from ...core.suggest import hint_of
from ...core.text import several
from .role import MAIN, Role, read

MOST_ROLES = 64


def with_script(texts: Sequence[str], script: str) -> tuple[tuple[str, ...], str]:
    """The roles, including a script that is typed in addition to them, and the command by which people know the run.

    The script becomes a role: it gets the remaining hosts, starts last, and the run ends with it.
    """
    roles = [read(text) for text in texts]
    if script:
        roles.append(Role(MAIN, script, 0, ends=True, after=tuple(role.name for role in roles)))
    return tuple(role.text for role in roles), first_of(roles).command


def cast(texts: Sequence[str], hosts: Sequence[str]) -> tuple[Role, ...]:
    """Give each role its hosts, and return the roles in an order in which they can start.

    `hosts`: the names of the run's hosts; empty for a run on this machine. Raises UsageError for roles that do not fit
    together.
    """
    roles = [read(text) for text in texts]
    if len(roles) > MOST_ROLES:
        raise UsageError(f"{len(roles)} roles: at most {MOST_ROLES}", "one role can have several nodes")
    by_name = {role.name: role for role in roles}
    of_nodes = {f"{name}-" for name in by_name}
    if len(rest := [role.name for role in roles if not role.nodes]) > 1:
        raise UsageError(
            f"roles {', '.join(rest)}: only one role can take the hosts that are left",
            "say how many hosts each role takes",
        )
    for role in roles:
        if by_name[role.name] is not role or role.name.rstrip("0123456789") in of_nodes:
            what = f"role {role.name}: two roles, or a role and a node of another role, have this name"
            raise UsageError(what, "give each a name of its own")
        if unknown := [name for name in role.after if name not in by_name]:
            raise UsageError(f"role {role.name}: after: there is no role {unknown[0]}", hint_of(unknown[0], by_name))
    if len(ends := [role.name for role in roles if role.ends]) > 1:
        hint = f"leave out `ends` of {ends[0]} ({MAIN} is a script that is typed beside roles: it ends the run)"
        raise UsageError(f"roles {', '.join(ends)}: only one role may end the run", hint)
    placed = {role.name: role for role in _placed(roles, hosts)}
    return tuple(placed[name] for name in _in_order(roles))


def _placed(roles: Sequence[Role], hosts: Sequence[str]) -> list[Role]:
    """Each role with its hosts. On this machine roles have no hosts: a role with named hosts gets as many nodes."""
    named = [host for role in roles for host in role.hosts]
    rest = max(1, len(hosts) - sum(len(role.hosts) or role.nodes for role in roles))
    sized = [replace(role, nodes=len(role.hosts) or role.nodes or rest) for role in roles]
    if not hosts:
        return sized
    for host in named:
        if host not in hosts:
            raise UsageError(f"a role names the host {host}, which the run does not have", hint_of(host, hosts))
        if named.count(host) > 1:
            raise UsageError(f"{host}: two roles name this host", "a host has one role: add a host")
    if (need := sum(role.nodes for role in sized)) != len(hosts):
        what = f"the roles need {several(need, 'host')}, and the run has {len(hosts)}"
        raise UsageError(what, "a host has one role: add or leave out hosts, or change the number of nodes")
    free = (host for host in hosts if host not in named)
    return [replace(role, hosts=role.hosts or tuple(islice(free, role.nodes))) for role in sized]


def _in_order(roles: Sequence[Role]) -> tuple[str, ...]:
    """The role names in starting order: each after the roles that it waits for. Raises UsageError for a cycle."""
    try:
        return tuple(TopologicalSorter({role.name: role.after for role in roles}).static_order())
    except CycleError as fault:
        circle = fault.args[1][::-1]
        hint = f"take {circle[1]} out of `after` of {circle[0]}"
        raise UsageError(f"these roles wait for each other in a circle: {' after '.join(circle)}", hint) from fault


def first_of(roles: Sequence[Role]) -> Role:
    """The role by which people know the run: the first role that ends the run, or else the first role."""
    return next((role for role in roles if role.ends), roles[0])
