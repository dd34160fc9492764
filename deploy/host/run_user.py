"""Which number the processes of a run have: the login's own; for logins as root one that is nobody's on any host.

Numbers are compared, not names: by the kernel, and by NFS between machines. So it is one number on all hosts of a run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..config.inventory import Cluster
from ..core import fields
from ..core.errors import DeployError, UsageError
from ..core.fields import digits
from ..core.scripts import Scripts
from ..ssh.session import Session, on_all
from .facts import HostFacts

# Given to nobody by systemd, useradd, its ranges of subordinate ids, or sssd. The second is for hosts that are
# containers themselves, and have 65536 numbers in all.
RANGES = (range(2_000_300_000, 2_147_000_000), range(60_600, 61_100))
_TRIES = 5
_NUMBER = digits(0, 1 << 32)
_SCRIPT = Scripts(__file__)


class Known(NamedTuple):
    """What a host where we are root says: the number that is kept there, the run folder's owner, how many there are."""

    kept: int = 0
    owner: int = 0
    mapped: int = 0


def choose(
    cluster: Cluster, sessions: Sequence[Session], facts: Mapping[str, HostFacts], run: str = ""
) -> tuple[Cluster, str]:
    """`cluster` with the number that its run has (`job.user`), and in words which one and why. Changes nothing there.

    `run`: the run to go on with. Raises UsageError where `user` of cluster.toml cannot be, DeployError where
    all numbers that were tried are somebody's.
    """
    roots = [session for session in sessions if session.host.name in facts and not facts[session.host.name].uid]
    asked = cluster.job.user
    for host, fact in facts.items():
        if fact.uid and asked not in (None, fact.uid):
            raise UsageError(
                f"user = {asked}: on {host} you log in as {fact.user} ({fact.uid}), who cannot give files away",
                "leave out `user`, or log in as root there",
            )
    own = {host: fact for host, fact in facts.items() if fact.uid}
    words = [f"{number} on {', '.join(hosts)}" for number, hosts in _by_number(own).items()]
    why = [f"as uid {' and '.join(words)}: who logs in there"] * bool(own)
    if not roots:
        return cluster, "; ".join(why)
    if asked is not None:
        number, reason = asked, "cluster.toml says so (`user`)"
    else:
        number, reason = _free(roots, run)
    why.append(f"as uid {number} on {', '.join(one.host.name for one in roots)}, where you log in as root: {reason}")
    return replace(cluster, job=replace(cluster.job, user=number)), "; ".join(why)


def candidates(known: Sequence[Known], drawn: Callable[[range], int]) -> dict[int, str]:
    """Numbers to try, in order, each with its reason: those kept on the hosts, in their order, then new ones."""
    most = min([one.mapped for one in known if one.mapped], default=1 << 32)
    usable = [numbers for numbers in RANGES if numbers.stop <= most]
    if not usable:
        raise DeployError(
            "there is no number that is nobody's: these hosts have too few", "name one: `user` under [job]"
        )
    kept = {one.kept: "earlier runs of root had it" for one in known if any(one.kept in numbers for numbers in usable)}
    new = {drawn(usable[0]): "it is nobody's on these hosts, and kept for later runs" for _ in range(_TRIES)}
    return {**kept, **{one: why for one, why in new.items() if one not in kept}}


def parse_known(said: str) -> Known:
    """Read the answer to `uid_known.sh`; what is no number is 0."""
    rows = fields.rows(said)
    return Known(*(fields.optional(_NUMBER)(rows.get(word, [""])[0].strip(), word) or 0 for word in Known._fields))


def _free(roots: Sequence[Session], run: str) -> tuple[int, str]:
    told = on_all(roots, lambda one: parse_known(one.run(_SCRIPT("uid-known", run)).out)).all()
    known = list(told.values())
    if owner := known[0].owner:
        return owner, "it owns the run's folder"
    tried = candidates(known, lambda numbers: numbers.start + secrets.randbelow(len(numbers)))
    words = [str(number) if any(number == one.kept for one in known) else f"+{number}" for number in tried]
    taken = on_all(roots, lambda one: one.run(_SCRIPT("uid-taken", *words)).out.split()).all()
    for number, reason in tried.items():
        if not any(str(number) in said for said in taken.values()):
            return number, reason
    raise DeployError("the numbers that were tried are all somebody's", "name one: `user` under [job] of cluster.toml")


def _by_number(facts: Mapping[str, HostFacts]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for host, fact in facts.items():
        found.setdefault(fact.uid, []).append(host)
    return found
