"""Choose the uid of a run's processes: the login's own, or for a login as root, one that is unused on all hosts.

The kernel, and NFS between machines, compare uids and not names, so a run has one uid on all its hosts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..core import fields
from ..core.errors import DeployError, UsageError
from ..core.fields import digits
from ..core.scripts import Scripts
from ..door.session import Session, on_all
from ..job.cluster import Cluster
from .facts import HostFacts

# systemd, useradd with its subordinate ids, and sssd give these uids to nobody. The second range is for hosts that are
# containers themselves, which have only 65536 uids.
RANGES = (range(2_000_300_000, 2_147_000_000), range(60_600, 61_100))
_TRIES = 5
_NUMBER = digits(0, 1 << 32)
_SCRIPT = Scripts(__file__)


class Known(NamedTuple):
    """The answer of a host where we are root: the uid of earlier runs, the run folder's owner, how many uids exist."""

    earlier: int = 0
    owner: int = 0
    mapped: int = 0


def choose(
    cluster: Cluster, sessions: Sequence[Session], facts: Mapping[str, HostFacts], run: str = ""
) -> tuple[Cluster, str]:
    """`cluster` with the run's uid (`job.user`), and a sentence that says which uid and why. Changes nothing there.

    `run`: the run to resume. Raises UsageError if `user` of cluster.toml is impossible, DeployError if somebody has
    each uid that was tried.
    """
    roots = [session for session in sessions if session.host.name in facts and not facts[session.host.name].uid]
    wanted = cluster.job.user
    for host, fact in facts.items():
        if fact.uid and wanted not in (None, fact.uid):
            raise UsageError(
                f"user = {wanted}: on {host} you log in as {fact.user} ({fact.uid}), who cannot change a file's owner",
                "leave out `user`, or log in as root there",
            )
    own = {host: fact for host, fact in facts.items() if fact.uid}
    words = [f"{number} on {', '.join(hosts)}" for number, hosts in _by_number(own).items()]
    why = [f"as uid {' and '.join(words)}: the user who logs in there"] * bool(own)
    if not roots:
        return cluster, "; ".join(why)
    if wanted is not None:
        number, reason = wanted, "cluster.toml says so (`user`)"
    else:
        number, reason = _free(roots, run)
    why.append(
        f"as uid {number} on {', '.join(session.host.name for session in roots)}, where you log in as root: {reason}"
    )
    return replace(cluster, job=replace(cluster.job, user=number)), "; ".join(why)


def candidates(known: Sequence[Known], drawn: Callable[[range], int]) -> dict[int, str]:
    """The uids to try, in order, each with its reason: those of earlier runs, in the hosts' order, then new ones."""
    most = min([entry.mapped for entry in known if entry.mapped], default=1 << 32)
    usable = [numbers for numbers in RANGES if numbers.stop <= most]
    if not usable:
        raise DeployError(
            "these hosts have too few uids to find a free one", "name one: `user` under [job] of cluster.toml"
        )
    known_numbers = {
        entry.earlier: "earlier runs of root had it"
        for entry in known
        if any(entry.earlier in numbers for numbers in usable)
    }
    new = {drawn(usable[0]): "nobody has it on these hosts; later runs use it again" for _ in range(_TRIES)}
    return {**known_numbers, **{number: why for number, why in new.items() if number not in known_numbers}}


def parse_known(answer: str) -> Known:
    """Read the answer to `uid_known.sh`; text that is not a number is 0."""
    rows = fields.rows(answer)
    return Known(*(fields.optional(_NUMBER)(rows.get(word, [""])[0].strip(), word) or 0 for word in Known._fields))


def _free(roots: Sequence[Session], run: str) -> tuple[int, str]:
    answers = on_all(roots, lambda session: parse_known(session.run(_SCRIPT("uid-known", run)).out)).all()
    known = list(answers.values())
    if owner := _owner(roots, {host: entry.owner for host, entry in answers.items() if entry.owner}):
        return owner, "it owns the run's folder"
    numbers = candidates(known, lambda span: span.start + secrets.randbelow(len(span)))
    words = [str(number) if any(number == entry.earlier for entry in known) else f"+{number}" for number in numbers]
    taken = on_all(roots, lambda session: session.run(_SCRIPT("uid-taken", *words)).out.split()).all()
    for number, reason in numbers.items():
        if not any(str(number) in ids for ids in taken.values()):
            return number, reason
    raise DeployError("somebody has each uid that was tried", "name one: `user` under [job] of cluster.toml")


def _owner(roots: Sequence[Session], owners: Mapping[str, int]) -> int:
    """The uid that owns the run's folder, as all hosts that have one say; 0 if none has it. Raises DeployError.

    A host that has no folder is asked whether somebody has that uid there: another host's word is not enough.
    """
    if len(set(owners.values())) > 1:
        words = ", ".join(f"uid {owner} on {host}" for host, owner in owners.items())
        raise DeployError(
            f"the run's folder has several owners: {words}", "name one: `user` under [job] of cluster.toml"
        )
    owner = next(iter(owners.values()), 0)
    others = [session for session in roots if session.host.name not in owners]
    if not owner or not others:
        return owner
    taken = on_all(others, lambda session: session.run(_SCRIPT("uid-taken", str(owner))).out.split()).all()
    if whose := [host for host, ids in taken.items() if str(owner) in ids]:
        raise DeployError(
            f"{', '.join(whose)}: somebody has uid {owner} there, which owns the run's folder on {', '.join(owners)}",
            "start a new run there, or name a uid: `user` under [job] of cluster.toml",
        )
    return owner


def _by_number(facts: Mapping[str, HostFacts]) -> dict[int, list[str]]:
    hosts: dict[int, list[str]] = {}
    for host, fact in facts.items():
        hosts.setdefault(fact.uid, []).append(host)
    return hosts
