"""How fast earlier pushes sent bytes to each host: small cargos go directly if that is faster than the road."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...core import fields
from ...core.errors import DeployError
from ...run.files import own_files
from ..remember import remember

# Compared with sending directly, the road needs MAKING_S more seconds before the first byte is passed on: for keys, a
# server and a connection for each of 8 hosts, on two cores (decision 0006). Fewer bytes than SHARED never go by the
# road; more than SMALL always do, and they stay on the hosts if the push is cut.
MAKING_S, SHARED, SMALL = 1.6, 768 << 10, 16 << 20
# A transfer of fewer bytes than _LEAST would only measure the connection's own buffers.
_LEAST, _TOO_LONG, _MOST_HOSTS, _FILE = 512 << 10, 2, 1000, "rates"
_KNOWN = fields.table(fields.text(500), fields.whole(1 << 50, least=1), _MOST_HOSTS)


class Rates:
    """Bytes per second from this machine, by host; kept as JSON in `folder`/rates.

    If that file cannot be read or written, the next push goes by the road.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._known = folder, dict[str, int]()
        with suppress(OSError, DeployError):
            self._known = _KNOWN(fields.document(own_files.read(folder / _FILE), _FILE), _FILE) if folder else {}

    def is_faster_directly(self, host: str, size: int, hosts: int) -> bool:
        """Whether a copy for each of `hosts` hosts leaves this machine sooner than a road is set up."""
        is_soon = host in self._known and size * hosts / self._known[host] < MAKING_S
        return size <= SMALL and (hosts == 1 or size < SHARED or is_soon)

    def seconds(self, hosts: Iterable[str], size: int) -> float | None:
        """How long `size` bytes take to the slowest of these hosts whose rate is known; None if none is known."""
        rates = [self._known[host] for host in hosts if host in self._known]
        return size / min(rates) if rates else None

    def record(self, hosts: Iterable[str], size: int, seconds: float) -> None:
        """Record that `size` bytes went to one of the hosts in this time, and to no other; the rate counts for all."""
        if size >= _LEAST and seconds > 0:
            self._known |= dict.fromkeys(hosts, max(1, int(size / seconds)))

    def check(self, host: str, seconds: float) -> None:
        """Forget the rate of a host if sending to it directly took this long: the next push measures it again."""
        if seconds > _TOO_LONG * MAKING_S:
            self._known.pop(host, None)

    def save(self) -> None:
        """Save the rates for the next push."""
        if self._folder:
            remember(self._folder, _FILE, json.dumps(dict([*self._known.items()][-_MOST_HOSTS:])).encode())
