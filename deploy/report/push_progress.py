"""The progress of a push on each host, as rows of text. Pure; console.py draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.text import amount, pace

_IN_A_LINE = 4  # hosts
_TELLING = 64 << 10  # bytes; below this, a rate means nothing


@dataclass
class _Transfer:
    """The bytes so far and in total; `began` and `ended` on the monotonic clock, None before."""

    sent: int = 0
    total: int = 0
    began: float | None = None
    ended: float | None = None


class Transfers:
    """The transfers to or from each of `hosts`; another name (this machine, which reads) comes first.

    `then`: what a host does after its last byte.
    """

    def __init__(self, hosts: Sequence[str], then: str = ", loading") -> None:
        self._then = then
        self._hosts = {host: _Transfer() for host in hosts}

    def tell(self, host: str, sent: int, total: int, now: float) -> None:
        """`sent` bytes of `total` have gone to the host. A second transfer starts from zero."""
        transfer = self._hosts.get(host)
        if transfer is None:
            transfer = _Transfer()
            self._hosts = {host: transfer, **self._hosts}
        if transfer.began is None or sent < transfer.sent:
            transfer.began, transfer.ended = now, None
        transfer.sent, transfer.total = sent, total
        if sent >= total and transfer.ended is None:
            transfer.ended = now

    def rows(self, now: float, room: int) -> list[tuple[str, str]]:
        """Names and words in at most `room` rows: first the running transfers, then a count of the rest."""
        moving = [name for name, host in self._hosts.items() if host.began is not None and host.ended is None]
        others = [name for name in self._hosts if name not in moving]
        names = [*moving, *others]
        shown = names if len(names) <= room else names[: room - 1]
        rows = [(name, self._words(self._hosts[name], now)) for name in shown]
        if left := len(names) - len(shown):
            done = sum(host.ended is not None for host in self._hosts.values())
            rows.append((f"and {left} more", f"{done} of {len(names)} done"))
        return rows

    def line(self, now: float) -> str:
        """The progress in one line, for an output that is not a terminal."""
        return "; ".join(f"{name} {words}" for name, words in self.rows(now, _IN_A_LINE))

    def _words(self, transfer: _Transfer, now: float) -> str:
        if transfer.began is None:
            return "waiting"
        if transfer.sent < min(_TELLING, transfer.total):
            return f"{amount(transfer.total)} to go"
        words = pace(transfer.sent, transfer.total, (transfer.ended or now) - transfer.began)
        return f"{words}{self._then}" if transfer.ended is not None else words
