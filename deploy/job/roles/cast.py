"""The roles of a run together: who has which hosts, in which order they start, and what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from ...core.errors import UsageError
from ...core.near import hint_of
from ...core.text import several
from .role import MAIN, Role, read

MOST_ROLES = 64


def with_script(texts: Sequence[str], script: str) -> tuple[tuple[str, ...], str]:
    """The roles with a script that is typed beside them, and the script by which people know the run.

    That script is a role like the others: it has the hosts that are left, starts last, and ends the run.
    """
    roles = [read(text) for text in texts]
    if script:
        roles.append(Role(MAIN, script, 0, ends=True, after=tuple(role.name for role in roles)))
    return tuple(role.text for role in roles), first_of(roles).command


def cast(texts: Sequence[str], hosts: Sequence[str]) -> tuple[Role, ...]:
    """The roles of a run, each with its hosts, in the order in which they start.

    `hosts`: their names; none on this machine. Raises UsageError for roles that do not fit together.
    """
    roles = [read(text) for text in texts]
    if len(roles) > MOST_ROLES:
        raise UsageError(f"{len(roles)} roles: at most {MOST_ROLES}", "a role may have several nodes")
    names = [role.name for role in roles]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"role {twice}: two roles have this name", "give each a name of its own")
    if len(rest := [role.name for role in roles if not role.nodes]) > 1:
        raise UsageError(f"roles {', '.join(rest)}: only one can have the hosts that are left", "say how many each has")
    for role in roles:
        if unknown := next((name for name in role.after if name not in names), ""):
            raise UsageError(f"role {role.name}: after: there is no role {unknown}", hint_of(unknown, names))
    if len(ends := [role.name for role in roles if role.ends]) > 1:
        typed = f"the script beside the roles ends the run: leave out `ends` of {ends[0]}"
        raise UsageError(
            f"roles {', '.join(ends)}: only one role ends the run",
            typed if MAIN in ends else "leave `ends` with one of them",
        )
    placed = _placed(roles, hosts) if hosts else _unplaced(roles)
    return _in_order(placed)


def _unplaced(roles: Sequence[Role]) -> list[Role]:
    """On this machine hosts have no names: a role that names some has as many nodes."""
    return [replace(role, nodes=len(role.hosts) or role.nodes or 1, hosts=()) for role in roles]


def _placed(roles: Sequence[Role], hosts: Sequence[str]) -> list[Role]:
    named = [host for role in roles for host in role.hosts]
    if unknown := next((host for host in named if host not in hosts), ""):
        what = f"a role names the host {unknown}, which the run does not have"
        raise UsageError(what, hint_of(unknown, hosts))
    if twice := next((host for host in named if named.count(host) > 1), ""):
        raise UsageError(f"{twice}: two roles name this host", "a host has one role: add a host")
    left = [host for host in hosts if host not in named]
    rest = max(1, len(left) - sum(role.nodes for role in roles if not role.hosts))
    placed = []
    for role in (role if role.nodes else replace(role, nodes=rest) for role in roles):
        own = role.hosts or tuple(left[: role.nodes])
        left = left if role.hosts else left[role.nodes :]
        if len(own) < (len(role.hosts) or role.nodes):
            need = sum(len(each.hosts) or each.nodes or 1 for each in roles)
            what = f"the roles need {several(need, 'host')}, and the run has {len(hosts)}"
            raise UsageError(f"role {role.name}: {what}", "a host has one role: add hosts, or lower its nodes")
        placed.append(replace(role, hosts=own, nodes=len(own)))
    if left:
        raise UsageError(f"{', '.join(left[:3])}: no role has this host", "give a role more nodes, or leave it out")
    return placed


def _in_order(roles: Sequence[Role]) -> tuple[Role, ...]:
    """Each role behind those that it starts after. Raises UsageError for roles that wait for each other."""
    left, ordered = list(roles), list[Role]()
    while left:
        done = {role.name for role in ordered}
        role = next((each for each in left if set(each.after) <= done), None)
        if role is None:
            _refuse_circle({each.name: each.after for each in left})
        ordered.append(role)
        left.remove(role)
    return tuple(ordered)


def _refuse_circle(after: Mapping[str, Sequence[str]]) -> NoReturn:
    """Raise UsageError for roles of which each starts after another one of them."""
    circle, name = list[str](), next(iter(after))
    while name not in circle:
        circle.append(name)
        name = next(other for other in after[name] if other in after)
    circle = circle[circle.index(name) :]
    others = [*circle[1:], circle[0]]
    waits = ", ".join(f"{role} after {other}" for role, other in zip(circle, others, strict=True))
    raise UsageError(f"roles that start in a circle: {waits}", f"take {others[0]} out of `after` of {circle[0]}")


def first_of(roles: Sequence[Role]) -> Role:
    """The role by which people know the run: the first that ends it, else the first."""
    return next((role for role in roles if role.ends), roles[0])
