"""Which host has which logs of a run: its containers and its ranks' files, and the lines of a console. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..core.errors import BadAnswer, DeployError
from ..core.names import RunId, run_id
from .facts import Container

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", re.ASCII)
# From time to time, a node's agent prints how many bytes its console has had so far (contract.md).
_COUNT = re.compile(r"muster-said ([0-9]{1,18})")
# What the Docker client prints when its engine ends or does not answer; these lines have no time.
_DEAD_ENGINE = re.compile(
    r"(unexpected )?EOF|.*cannot connect to the docker daemon|.*error during connect|.*connection reset by peer",
    re.IGNORECASE,
)
_LINE_WEIGHT = 75
# Bytes: standard output and error may arrive in another order than the agent counted. An engine drops more than this.
_SLACK = 8 << 20
# The engine splits a longer line into pieces, each with a time in front.
_PIECE = 16 * 1024


@dataclass(frozen=True)
class HostLogs:
    """The logs on one host: the runs' containers, and the ranks' own logs as (run, rank)."""

    members: tuple[Container, ...]
    rank_logs: frozenset[tuple[RunId, int]]


class ConsoleCount:
    """Compares how many bytes we have read from a node's console with the count that the node's agent reports.

    Calls `on_missed` once if the engine dropped lines before we read them. `whole`: we read from the console's start.
    """

    def __init__(self, on_missed: Callable[[], object], whole: bool = True) -> None:
        self._on_missed, self._warned = on_missed, False
        self._total, self._read = 0, 0 if whole else None

    def is_count(self, words: str) -> bool:
        """Count a line of the console. True if it is the agent's count rather than output of the script."""
        match = _COUNT.fullmatch(words)
        if match is None:
            if self._read is not None:
                self._read += len(words if words.isascii() else words.encode(errors="replace")) + 1 + _LINE_WEIGHT
            return False
        total = int(match[1])
        # A restarted node counts from 0 again.
        announced = total - (self._total if total >= self._total else 0)
        if self._read is not None and announced - self._read > _SLACK and not self._warned:
            self._warned = True
            self._on_missed()
        self._total, self._read = total, 0
        return True


def missed_lines(host: str) -> str:
    """The warning about a host whose console was not read in time."""
    return (
        f"{host}: its engine keeps only 100 MB of the console and dropped older lines; the script's own files "
        "are complete"
    )


def parse(containers: Iterable[Container], answer: str) -> HostLogs:
    """Read the logs on a host from `containers` of our runs and the answer to rank-logs."""
    logs = set()
    for line in answer.split("\n"):
        match = re.fullmatch(r"([^/]+)/logs/rank-([0-9]{1,9})\.log", line)
        with suppress(BadAnswer):  # a folder that does not belong to a run
            if match:
                logs.add((run_id(match[1]), int(match[2])))
    return HostLogs(tuple(containers), frozenset(logs))


def ranks_of(members: Mapping[str, Container]) -> dict[str, range]:
    """The ranks on each host, numbered as torchrun does. A missing node counts as many ranks as the next node has."""
    ranks, first, place = {}, 0, 0
    for host, member in sorted(members.items(), key=lambda pair: pair[1].place):
        first += (member.place - place) * member.ranks
        ranks[host] = range(first, first + member.ranks)
        first, place = first + member.ranks, member.place + 1
    return ranks


def host_of_rank(
    hosts: Mapping[str, HostLogs], members: Mapping[str, Container], run: str, rank: int
) -> tuple[str, bool]:
    """The host that has a rank's lines, and whether they are in the rank's own log (else in its container's console).

    Raises DeployError if no host has the rank, or if it shares its console with other ranks.
    """
    for host, logs in hosts.items():
        if (run, rank) in logs.rank_logs:
            return host, True
    ranks = ranks_of(members)
    host = next((host for host, of_host in ranks.items() if rank in of_host), "")
    if not host:
        raise DeployError(
            f"{run}: no host here has lines of rank {rank}", _who_has_lines(hosts, run, list(ranks.values()))
        )
    if len(ranks[host]) > 1:
        hint = "it has printed nothing, or shares a console with other ranks: leave out --rank to see all of it"
        raise DeployError(f"{run}: rank {rank} has no log of its own on {host}", hint)
    return host, False


def _who_has_lines(hosts: Mapping[str, HostLogs], run: str, ranks: Sequence[range]) -> str:
    """Which ranks run, or which have written lines: a rank that prints nothing has no log."""
    if ranks:
        return f"there are {rank_text(ranks)}"
    wrote = sorted({rank for logs in hosts.values() for of_run, rank in logs.rank_logs if of_run == run})
    if not wrote:
        return "none of its ranks has written any lines there"
    numbers = ", ".join(map(str, wrote))
    return f"there are logs {numbers}: a rank that prints nothing has none, and ranks of one `run.sh` share its node's"


def rank_text(ranks: Sequence[range]) -> str:
    """Ranks for people: `0`, `8-15`."""
    return ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in ranks)


def is_of_dead_engine(words: str) -> bool:
    """Whether a line without a time is the Docker client's message about an engine that ended or does not answer."""
    return len(words) < 500 and bool(_DEAD_ENGINE.match(words))


def split(line: str) -> tuple[str, str]:
    """Split a console line into its time and its text. A line without a time continues the line before."""
    match = STAMP.match(line)
    if not match:
        return "", line
    words = line[match.end() :]
    return match[0].rstrip(), STAMP.sub("", words) if len(words) > _PIECE else words
