"""How fast bytes left here for hosts, as a push measured it: what is small goes straight where that is faster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...core import fields
from ...core.errors import DeployError
from ...run.files import own_files
from ..remember import remember

# A road takes so many seconds more than a straight way, before a byte is passed on: keys, a server and a connection for
# each of 8 hosts, on two cores (decision 0006). Less than SHARED never takes it; more than SMALL always does, and stays
# on the hosts if the push is cut.
MAKING_S, SHARED, SMALL = 1.6, 768 << 10, 16 << 20
# Of less than this, the connection's own buffers would be measured.
_LEAST, _TOO_LONG, _MOST_HOSTS, _FILE = 512 << 10, 2, 1000, "rates"
_KNOWN = fields.table(fields.text(500), fields.whole(1 << 50, least=1), _MOST_HOSTS)


class Rates:
    """Bytes a second from here, by host; kept in `folder`/rates, as JSON. If that cannot be read or written, the next
    push goes by the road."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._known = folder, dict[str, int]()
        with suppress(OSError, DeployError):
            self._known = _KNOWN(fields.document(own_files.read(folder / _FILE), _FILE), _FILE) if folder else {}

    def is_straight(self, host: str, size: int, hosts: int) -> bool:
        """Whether a copy for each of so many hosts leaves here sooner than a road is made."""
        is_soon = host in self._known and size * hosts / self._known[host] < MAKING_S
        return size <= SMALL and (hosts == 1 or size < SHARED or is_soon)

    def seconds(self, hosts: Iterable[str], size: int) -> float | None:
        """How long so many bytes need to one of these hosts, as far as it is known."""
        rates = [self._known[host] for host in hosts if host in self._known]
        return size / min(rates) if rates else None

    def take(self, hosts: Iterable[str], size: int, seconds: float) -> None:
        """So many bytes went to one of the hosts, and to no other meanwhile, in that time; their way is the same."""
        if size >= _LEAST and seconds > 0:
            self._known |= dict.fromkeys(hosts, max(1, int(size / seconds)))

    def check(self, host: str, seconds: float) -> None:
        """Forget the rate of a host that took so long by the straight way: the next push measures again."""
        if seconds > _TOO_LONG * MAKING_S:
            self._known.pop(host, None)

    def save(self) -> None:
        """Keep them for the next push."""
        if self._folder:
            remember(self._folder, _FILE, json.dumps(dict([*self._known.items()][-_MOST_HOSTS:])).encode())
