"""Turn the user's SSH settings into a Way to each host. Asks OpenSSH; without OpenSSH, reader.py reads them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..config import values as values
from ..config.inventory import Host
from ..core.errors import UsageError
from . import user_file
from .ask import Answer, OpenSSH, Place
from .reader import Reader
from .rules import Rules
from .way import Way

_AT_ONCE = 8
# The most jump hosts in a row; more of them are a circle that makes a new name each time (ProxyJump x%h).
_MOST_HOPS = 16


class Settings:
    """~/.ssh/config and /etc/ssh/ssh_config, or the file MUSTER_SSH_CONFIG names alone.

    `for_ssh`: the user's own ssh will log in, so settings that only it honours are not refused.
    """

    def __init__(self, source: OpenSSH | Reader, for_ssh: bool = False) -> None:
        self._source, self._for_ssh = source, for_ssh

    def way(self, host: Host) -> Way:
        """The way to one host. Raises UsageError."""
        return self.ways([host])[host.name]

    def ways(self, hosts: Iterable[Host]) -> dict[str, Way]:
        """The way to each host, by its name. Raises UsageError for settings we cannot honour, or that circle."""
        places = {host.name: Place(host.address, host.user, host.port, _jumps(host)) for host in hosts}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            usual = pool.submit(self._source.defaults)
            try:
                answers, rules = self._ask_all(pool, places.values()), Rules(usual.result(), self._for_ssh)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        ways: dict[Place, Way] = {}
        return {name: self._way(rules, answers, ways, place, ()) for name, place in places.items()}

    def _ask_all(self, pool: ThreadPoolExecutor, places: Iterable[Place]) -> dict[Place, Answer]:
        """Answers for all places and the jump hosts before them, asked side by side."""
        answers: dict[Place, Answer] = {}
        todo = list(dict.fromkeys(places))
        for _ in range(_MOST_HOPS):
            answers.update(zip(todo, pool.map(self._source.ask, todo), strict=True))
            hops = [_hop(place, answers[place]) for place in todo]
            todo = [hop for hop in dict.fromkeys(hops) if hop and hop not in answers]
            if not todo:
                return answers
        raise UsageError(f"{todo[0].name}: more than {_MOST_HOPS} jump hosts in a row", "see ProxyJump")

    def _way(
        self,
        rules: Rules,
        answers: dict[Place, Answer],
        ways: dict[Place, Way],
        place: Place,
        behind: tuple[Place, ...],
    ) -> Way:
        if place in behind:
            circle = " -> ".join(hop.name for hop in (*behind, place))
            raise UsageError(
                f"{behind[0].name}: its jump hosts form a circle: {circle}",
                f"`ProxyJump none` in a section for {place.name}",
            )
        if place not in ways:
            hop = _hop(place, answers[place])
            before = self._way(rules, answers, ways, hop, (*behind, place)) if hop else None
            ways[place] = rules.way(place, answers[place], before, self._source.client(place))
        return ways[place]


def load(for_ssh: bool = False) -> Settings:
    """Load the settings. Raises UsageError for a file that is missing or cannot be understood."""
    path = os.environ.get("MUSTER_SSH_CONFIG")
    file = Path(path).expanduser().absolute() if path else None
    if file and not file.is_file():
        raise UsageError(f"MUSTER_SSH_CONFIG={path}: there is no such file", "name an SSH config file, or unset it")
    program = shutil.which("ssh")
    return Settings(OpenSSH(program, str(file) if file else None) if program else Reader(file), for_ssh)


def _jumps(host: Host) -> str | None:
    """The jump hosts an inventory names, as ProxyJump wants them: with brackets around IPv6 addresses."""
    hops = []
    for hop in () if host.gateway is None else host.gateway.split(","):
        if not hop:
            raise UsageError(f"{host.name}: a jump host without a name", 'gateway = "user@door:port"')
        destination = values.destination(hop)
        bare = destination and ":" in destination.host and "[" not in hop
        hops.append(hop.replace(destination.host, f"[{destination.host}]") if destination and bare else hop)
    return ",".join(hops) or None


def _hop(place: Place, answer: Answer) -> Place | None:
    """The last jump host before a place. The jump hosts named before it lead there, or if none, the settings do."""
    jumps = Rules.jumps(place, answer)
    if not jumps:
        return None
    others, _, last = jumps.rpartition(",")
    destination = values.destination(last)
    if destination is None:
        raise UsageError(
            f"{place.name}: its ProxyJump: {last!r} is not a host", f"`{user_file.ssh()} -G {place.name}` shows it"
        )
    return Place(destination.host, destination.user, destination.port, others or None)
