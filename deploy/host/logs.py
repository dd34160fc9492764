"""Whose logs lie on which host: the reader of `look_commands.members`, and who says what of a console. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..core.errors import BadAnswer, DeployError, UsageError
from ..core.fields import digits, text
from ..core.names import ContainerName, RunId, container_name, run_id

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", re.ASCII)
# What an agent says of its script's console now and then: how much it was so far (docs/contract.md).
_SAID = re.compile(r"muster-said ([0-9]{1,18})")
_LINE_WEIGHT = 75
# Two streams come in another order than they were counted in; what an engine forgets at once is more.
_SLACK = 8 << 20
# The engine keeps a longer line in pieces, and writes the time in front of each.
_PIECE = 16 * 1024


@dataclass(frozen=True)
class Member:
    """A run's container on a host: its place among the nodes and how many ranks it has."""

    run: RunId
    container: ContainerName
    state: str
    place: int
    ranks: int

    @property
    def runs(self) -> bool:
        """Whether more will be said."""
        return self.state in ("running", "paused", "restarting", "created")


@dataclass(frozen=True)
class HostLogs:
    """What lies on one host: the runs' containers, and the ranks' own logs as (run, rank)."""

    members: tuple[Member, ...]
    rank_logs: frozenset[tuple[RunId, int]]


class Heard:
    """Counts what is read of a node's console, against what the node says that it was: `missed` is called, once, where
    the engine forgot lines before they were read. `whole`: read from the console's beginning.
    """

    def __init__(self, missed: Callable[[], object], whole: bool = True) -> None:
        self._missed, self._told = missed, False
        self._said, self._heard = 0, 0 if whole else None

    def is_count(self, words: str) -> bool:
        """Take a line; whether it is none of the script's, but the count."""
        found = _SAID.fullmatch(words)
        if found is None:
            if self._heard is not None:
                self._heard += len(words if words.isascii() else words.encode(errors="replace")) + 1 + _LINE_WEIGHT
            return False
        said = int(found[1])
        # A node that was started again counts anew.
        since = said - (self._said if said >= self._said else 0)
        if self._heard is not None and since - self._heard > _SLACK and not self._told:
            self._told = True
            self._missed()
        self._said, self._heard = said, 0
        return True


def missed(host: str) -> str:
    """What to tell of a host whose console was not read in time."""
    return f"{host} said more than its engine keeps (100 MB): older lines are lost; what a script wrote itself is not"


def parse(said: str) -> HostLogs:
    """Read the answer to `look_commands.members`; lines with other words are passed over.

    Raises BadAnswer for a container whose names nothing may be called by.
    """
    members, logs = [], set()
    for line in said.split("\n"):
        word, *cells = line.split(" ")
        if word == "member":
            if len(cells) != 5:
                raise BadAnswer("a run's container", "its run, name, state, place and ranks", " ".join(cells))
            run, container = run_id(cells[0], "the label muster.run"), container_name(cells[1])
            place, ranks = digits(0, 1 << 20)(cells[3], "muster.place"), digits(1, 65536)(cells[4], "ranks")
            members.append(Member(run, container, text(20)(cells[2], "state"), place, ranks))
        found = re.fullmatch(r"rank-log ([^/]+)/logs/rank-([0-9]{1,9})\.log", line)
        with suppress(BadAnswer):  # a folder that is none of ours
            if found:
                logs.add((run_id(found[1]), int(found[2])))
    return HostLogs(tuple(members), frozenset(logs))


def choose_run(hosts: Mapping[str, HostLogs], asked: str) -> RunId:
    """The run that is meant: the one named, or the only one that goes on, or the only one there is.

    Raises UsageError with those there are.
    """
    members = [member for host in hosts.values() for member in host.members]
    there = {member.run for member in members} | {run for host in hosts.values() for run, _ in host.rank_logs}
    going = {member.run for member in members if member.runs}
    if asked in there:
        return RunId(asked)
    for choice in (going, {member.run for member in members}, there):
        if not asked and len(choice) == 1:
            return next(iter(choice))
    what = f"{asked} is not on these hosts" if asked else "which run?"
    raise UsageError(f"{what}: there are {', '.join(sorted(there)) or 'none'}", "name it: --run ID")


def members_of(hosts: Mapping[str, HostLogs], run: str) -> dict[str, Member]:
    """The run's container by host, in the order of the nodes."""
    found = {host: member for host, logs in hosts.items() for member in logs.members if member.run == run}
    return dict(sorted(found.items(), key=lambda pair: pair[1].place))


def ranks_of(members: Mapping[str, Member]) -> dict[str, range]:
    """The ranks on each host, as torchrun counts them, node by node. One that is not here has as many as the next."""
    found, first, place = {}, 0, 0
    for host, member in members.items():
        first += (member.place - place) * member.ranks
        found[host] = range(first, first + member.ranks)
        first, place = first + member.ranks, member.place + 1
    return found


def host_of_rank(hosts: Mapping[str, HostLogs], run: str, rank: int) -> tuple[str, bool]:
    """Where a rank's lines are, and whether they are a log of its own; else they are that host's console.

    Raises DeployError where there is neither, or where its console is that of other ranks as well.
    """
    for host, logs in hosts.items():
        if (run, rank) in logs.rank_logs:
            return host, True
    ranks = ranks_of(members_of(hosts, run))
    host = next((host for host, own in ranks.items() if rank in own), "")
    if not host:
        raise DeployError(f"{run}: no host here has rank {rank}", f"there are {shown(list(ranks.values())) or 'none'}")
    if len(ranks[host]) > 1:
        others = shown([ranks[host]])
        raise DeployError(f"{run}: ranks {others} share one console on {host}", f"without --rank it is shown: {host}")
    return host, False


def shown(ranks: Sequence[range]) -> str:
    """Ranks for people: `0`, `8-15`."""
    return ", ".join(str(own[0]) if len(own) == 1 else f"{own[0]}-{own[-1]}" for own in ranks)


def split(line: str) -> tuple[str, str]:
    """A console's line as its time and its words. No time: it goes on with the line before."""
    found = STAMP.match(line)
    if not found:
        return "", line
    words = line[found.end() :]
    return found[0].rstrip(), STAMP.sub("", words) if len(words) > _PIECE else words
