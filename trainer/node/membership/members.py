"""Decides which nodes train in the next epoch (a majority), which are lost or cut off, and which must not leave. Pure.

An epoch is a number and the nodes that train in it, in the planned order. The nodes' register keeps the current one
(register.py). This module decides the next one, from what the register's leader sees. A spare waits for a free place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

# A node that has not answered for this long is lost. A node whose host refuses the connection is lost immediately.
SILENT_S = 2.0
# With an arbiter, half of the hosts may train, but only once the other half has stopped. A node that does not see a
# majority ends its ranks after ENDS_S, and counts as ended after ENDED_S.
ENDS_S, ENDED_S = 5.0, 12.0
# A node asks each other node at least every ASK_S. So after HEARD_S, all have heard its report, such as that it leaves.
ASK_S, HEARD_S = 0.6, 0.85


@dataclass(frozen=True)
class Epoch:
    """The nodes that train, those of the epoch `before`, and the run's exit code once it is `over` (None: it is not).

    `repeats`: how often the same nodes have begun again. No node was lost then, so the ranks had failed by themselves.
    """

    number: int = 0
    members: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    over: int | None = None
    repeats: int = 0


@dataclass(frozen=True)
class View:
    """What a node last reported, and when (in seconds of this node's clock). `gone`: its host refuses connections.

    `after`: it waits for an epoch with a number above this one; None: its ranks run. `number`: the epoch of its ranks.
    `sees`: the nodes that answer it. `store`: where the ranks of epoch `number` meet, reported by its first node.
    `saved`: when the newest checkpoint on its disk was written, by the clock of its writer; for a script, the newest
    file that is kept. `files`: where other nodes copy these files. `stops`: it was asked to stop the run. `ended`: an
    epoch, and the code with which its ranks have ended the run. `leaves`: it was asked to leave the run. `done`: its
    ranks of that epoch have ended well. `share`: where it listens to share files before that epoch. `failed`: its ranks
    have failed. `life`: an id of its agent's process. `ranks`: how many it has. `over`: it has ended for good, in a run
    that needs all its nodes. `stands`: the state of its ranks: they move, or are asleep, or one of those waits (a
    constant of end_stuck_rank.py).
    """

    answered: float = -1e9
    gone: bool = False
    after: int | None = None
    number: int = 0
    sees: frozenset[str] = frozenset()
    store: str = ""
    saved: float = 0.0
    stops: bool = False
    files: str = ""
    ended: tuple[int, int] | None = None
    leaves: bool = False
    stands: str = ""
    done: bool = False
    share: str = ""
    life: str = ""
    ranks: int = 1
    failed: bool = False
    over: bool = False

    def is_alive(self, now: float) -> bool:
        """Whether the node counts as present."""
        return not self.gone and now - self.answered < SILENT_S


def find_cut_off(
    left_out: Sequence[str],
    members: Sequence[str],
    own: str,
    views: Mapping[str, View],
    news_at: float,
    sure: float,
) -> list[tuple[str, tuple[str, ...]]]:
    """Return the live nodes that an epoch left out, and for each the members that cannot reach it. Pure.

    A node is live if a member got an answer from it after `news_at`, when the epoch began. `own`, this node, knows that
    for itself. The report of another member counts only if it came after `sure`: an earlier one may be about an older
    answer.
    """
    nodes = []
    for name in left_out:
        view = views[name]
        reach = {member: name in views[member].sees for member in members if views[member].answered > sure}
        reach[own] = view.answered > news_at
        missed = tuple(member for member in members if not reach.get(member, True))
        # If a node has ended, its host refuses the connection; that is not a broken link.
        if missed and any(reach.values()) and not view.gone:
            nodes.append((name, missed))
    return nodes


@dataclass
class Leader:
    """What the register's leader remembers between two decisions: since when it has a reason for another epoch.

    `planned`: all nodes that may train. As many train at the same time as there are nodes other than `spares`. `keeps`:
    the ranks will write a checkpoint, even if there is none yet. `arbiter`: a node that does not train votes as well,
    so half of the hosts may continue. `began`: since when this leader has asked the other nodes.
    """

    planned: Sequence[str]
    least: int
    spares: Collection[str] = ()
    arbiter: bool = False
    keeps: bool = True
    began: float = 0.0
    _since: dict[str, float] = field(default_factory=dict)
    _saved: dict[str, float] = field(default_factory=dict)

    def next(self, epoch: Epoch, views: Mapping[str, View], now: float) -> tuple[str, ...] | None:
        """The members of the next epoch; None while the current one should continue, or too few could take part."""
        alive = {name for name in self.planned if views[name].is_alive(now)}
        if epoch.over is not None:
            return None
        if not epoch.number:  # the first epoch is the whole plan
            hosts = self._hosts
            return hosts if all(name in alive and _ready(views[name], 0) for name in hosts) else None
        reason = self._reason(epoch, views, alive)
        if not reason:
            self._since.clear()
            return None
        since = self._since.setdefault(reason, now)
        # A node that has not answered since may be the cause: wait for its answer, or until it counts as lost.
        heard = all(views[name].answered > since for name in alive & {*epoch.members})
        patience = {"links": SILENT_S, "left": HEARD_S}.get(reason, 0.0)
        if not heard or now - since < patience:
            return None
        able = [
            name
            for name in self.planned
            if name in alive and (name in epoch.members or self._waits(views[name], epoch))
        ]
        members = self._chosen(self._staying(able, epoch, views, now), epoch, views, now)
        if reason == "back" and not {*members} > {*epoch.members}:  # a node that cannot reach all members gets no place
            return None
        if reason == "left" and all(name in members for name in _leavers(epoch.members, views)):
            return None
        return tuple(members) if len(members) >= self.least else None

    @property
    def _hosts(self) -> tuple[str, ...]:
        return tuple(name for name in self.planned if name not in self.spares)

    def _staying(self, able: Sequence[str], epoch: Epoch, views: Mapping[str, View], now: float) -> list[str]:
        """The nodes that are not leaving, and those leaving nodes without which too few would train."""
        left = list(able)
        for name in _leavers(able, views):
            rest = [other for other in left if other != name]
            if len(self._chosen(rest, epoch, views, now)) >= self.least:
                left = rest
        return left

    def _chosen(self, able: Sequence[str], epoch: Epoch, views: Mapping[str, View], now: float) -> list[str]:
        """The nodes that train: at most as many as planned. Current members stay; then come hosts, and then spares.

        A majority of the hosts is always among them. So two epochs always share a host, and cannot train at the same
        time. With an arbiter, half of the hosts are enough, once the other half cannot train.
        """
        order = sorted(able, key=lambda name: (name not in epoch.members, name in self.spares))
        members = _clique(order, views)[: len(self._hosts)]
        hosts, others = {*members} & {*self._hosts}, {*self._hosts} - {*members}
        half = self.arbiter and len(hosts) == len(others)
        stopped = half and all(self._stopped(views[name], epoch, members, now) for name in others)
        return sorted(members, key=self.planned.index) if len(hosts) > len(others) or stopped else []

    def _stopped(self, view: View, epoch: Epoch, members: Collection[str], now: float) -> bool:
        """Whether a host outside the next epoch cannot train: its ranks need a member, it waits, or it has ended."""
        if view.number == epoch.number and {*members} & {*epoch.members}:
            return True
        if view.is_alive(now):
            return view.after is not None
        return now - max(view.answered, self.began) > ENDED_S

    def _reason(self, epoch: Epoch, views: Mapping[str, View], alive: Collection[str]) -> str:
        if any(name not in alive for name in epoch.members):
            return "lost"
        if any(_ready(views[name], epoch.number) for name in epoch.members):
            return "" if any(views[name].stops for name in epoch.members) else "again"
        if any(other not in views[name].sees for name in epoch.members for other in epoch.members if other != name):
            return "links"
        if _leavers(epoch.members, views):
            return "left"
        if len(epoch.members) == len(self._hosts):
            return ""
        # A node that is back takes part after the next checkpoint, so that the ranks repeat only a few steps.
        saved = max((views[name].saved for name in epoch.members), default=0.0)
        for name in self.planned:
            if name in epoch.members or name not in alive or not self._waits(views[name], epoch):
                self._saved.pop(name, None)
            elif saved > self._saved.setdefault(name, saved) or not (saved or self.keeps):
                return "back"
        return ""

    @staticmethod
    def _waits(view: View, epoch: Epoch) -> bool:
        return view.after is not None and view.after <= epoch.number


def _leavers(names: Sequence[str], views: Mapping[str, View]) -> list[str]:
    return [name for name in names if views[name].leaves]


def may_repeat(repeats: int, restarts: int) -> bool:
    """Whether the same nodes may begin again after this many such restarts; the same rule for all runs."""
    return repeats < restarts


def refusal_to_leave(
    name: str, able: Sequence[str], voters: Collection[str], least: int, views: Mapping[str, View], now: float
) -> str:
    """Why a node must not leave the run; empty if it may. `able`: all nodes that may train, hosts and spares."""
    if name not in able:
        return "it is the arbiter, whose vote is needed so that a host may be lost"
    left = {each for each, view in views.items() if each != name and view.is_alive(now) and not view.leaves}
    trainers, votes = len(left.intersection(able)), len(left.intersection(voters))
    if trainers < least:
        return f"{trainers} of {len(able)} nodes would be left, but --min-nodes is {least}"
    if name in voters and votes * 2 <= len(voters):
        return f"{votes} of {len(voters)} votes would be left, but more than half must agree on who trains"
    return ""


def _ready(view: View, number: int) -> bool:
    return view.after is not None and view.after >= number


def _clique(names: Sequence[str], views: Mapping[str, View]) -> list[str]:
    """Return nodes that all see each other: drop the node that the fewest others see, until that is true."""
    left = list(names)

    def links(name: str) -> int:
        return sum(other in views[name].sees and name in views[other].sees for other in left if other != name)

    while left and min(map(links, left)) < len(left) - 1:
        fewest = min(map(links, left))
        left.remove(next(name for name in reversed(left) if links(name) == fewest))
    return left
