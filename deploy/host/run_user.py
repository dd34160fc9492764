"""Choose the uid of a run's processes: the login's own, or, for a login as root, one that is unused on all hosts.

The kernel, and NFS between machines, compare uids rather than names, so a run has one uid on all its hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ..core import fields
from ..core.errors import DeployError, UsageError
from ..core.fields import digits
from ..door.session import Session, on_all
from .commands import script
from .reached import ReachedHosts

# Neither systemd, nor useradd with its subordinate ids, nor sssd gives these uids to anybody, and they also exist on a
# host that is itself a container. The first unused uid is the same in every run, so a run finds the files of the run
# before.
NUMBERS = range(60_600, 60_632)
_OWNER = fields.default(digits(1 << 32), 0)
_NAME_ONE = "choose one: `user` under [job] in cluster.toml"
Reached = TypeVar("Reached", bound=ReachedHosts)


def choose_uid(hosts: Reached, run: str = "") -> tuple[Reached, str]:
    """The hosts with the run's uid (`job.user`), and a sentence that tells which uid and why. Changes nothing there.

    `run`: the run to resume. Raises UsageError if `user` in cluster.toml is impossible, DeployError if every uid in
    NUMBERS is taken.
    """
    as_root = {host for host, fact in hosts.facts.items() if not (fact.uid or fact.bare)}
    roots, wanted = hosts.with_sessions_to(as_root).sessions, hosts.job.user
    own = dict[int, list[str]]()
    for host, fact in hosts.facts.items():
        if fact.uid and wanted not in (None, fact.uid):
            raise UsageError(
                f"user = {wanted}: on {host} you log in as {fact.user} ({fact.uid}), who cannot change a file's owner",
                "leave out `user`, or log in as root there",
            )
        if host not in as_root:
            own.setdefault(fact.uid, []).append(host)
    words = [f"{number} on {', '.join(names)}" for number, names in own.items()]
    why = [f"as uid {' and '.join(words)}: the user that you log in as"] * bool(words)
    if not roots:
        return hosts, "; ".join(why)
    number, reason = (wanted, "cluster.toml says so (`user`)") if wanted is not None else _free(roots, run)
    names = ", ".join(session.name for session in roots)
    why.append(f"as uid {number} on {names}, where you log in as root: {reason}")
    cluster = replace(hosts.cluster, job=replace(hosts.job, user=number))
    return replace(hosts, cluster=cluster), "; ".join(why)


def _free(roots: Sequence[Session], run: str) -> tuple[int, str]:
    if run and (owner := _owner(roots, run)):
        return owner, "it owns the run's folder"
    taken = set().union(*_taken(roots, NUMBERS).values())
    number = next((number for number in NUMBERS if str(number) not in taken), None)
    if number is None:
        raise DeployError(f"no uid is free from {NUMBERS.start} to {NUMBERS.stop - 1}", _NAME_ONE)
    return number, "no user on these hosts has it"


def _owner(roots: Sequence[Session], run: str) -> int:
    """The uid that owns the run's folder, on which all hosts with a folder must agree; 0 if none has one.

    A host without the folder is asked whether somebody has that uid there: it must be free on that host too. Raises
    DeployError.
    """
    answers = on_all(roots, lambda session: _OWNER(session.run(script("owner", run)).out.strip(), "an owner")).all()
    owners = {host: owner for host, owner in answers.items() if owner}
    if len(set(owners.values())) > 1:
        words = ", ".join(f"uid {owner} on {host}" for host, owner in owners.items())
        raise DeployError(f"the run's folder has several owners: {words}", _NAME_ONE)
    owner = next(iter(owners.values()), 0)
    others = [session for session in roots if owner and session.name not in owners]
    if whose := [host for host, ids in _taken(others, [owner]).items() if ids]:
        raise DeployError(
            f"{', '.join(whose)}: uid {owner} is another user there, and owns the run's folder on {', '.join(owners)}",
            f"start a new run there, or {_NAME_ONE}",
        )
    return owner


def _taken(sessions: Sequence[Session], numbers: Iterable[int]) -> Mapping[str, list[str]]:
    """Which of these uids are taken, by host."""
    return on_all(sessions, lambda session: session.run(script("uid-taken", *map(str, numbers))).out.split()).all()
