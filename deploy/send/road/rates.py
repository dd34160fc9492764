"""How fast bytes left here for hosts, as a push measured it: what is small goes straight where that is faster."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...core.errors import DeployError
from ...core.fields import digits
from ...run.files import own_files

# A road takes so many seconds more than a straight way, before a byte is passed on: keys, a server and a connection for
# each of 8 hosts, on two cores (decision 0006). More than SMALL always takes it.
MAKING_S, SMALL = 1.6, 16 << 20
# Of less than this, the connection's own buffers would be measured.
_LEAST, _TOO_LONG, _MOST_HOSTS, _FILE = 512 << 10, 2, 1000, "rates"
_RATE = digits(1, 1 << 50)


class Rates:
    """Bytes a second from here, by host; kept in `folder`/rates, a line `HOST RATE` each. If that cannot be read or
    written, the next push goes by the road."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._known = folder, dict[str, int]()
        with suppress(OSError, DeployError):
            rows = own_files.read(folder / _FILE).decode(errors="replace").split("\n") if folder else []
            self._known = {
                host: _RATE(rate, "a rate") for host, _, rate in (row.partition(" ") for row in rows) if rate
            }

    def is_straight(self, host: str, size: int, hosts: int) -> bool:
        """Whether a copy for each of so many hosts leaves here sooner than a road is made."""
        return size <= SMALL and host in self._known and size * hosts / self._known[host] < MAKING_S

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
        rows = [f"{host} {rate}" for host, rate in self._known.items()][-_MOST_HOSTS:]
        with suppress(OSError):
            if not self._folder:
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            own_files.write(self._folder, _FILE, "\n".join(rows).encode())
