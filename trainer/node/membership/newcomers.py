"""Hosts that have joined a running run (`muster join`): each is a spare that is missing in the other nodes' plan.

Only a newcomer's own plan contains it. Its questions to the other nodes contain its name and address, and nodes pass
these on in their questions and answers, all of which prove that they know the run's key (peers.py). A node keeps the
newcomers that it knows in a file, in case it is started again. Standard library only.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import read_object, replace

_MOST = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
# Address, port and place. The place is a number that no other node of the run has; a node that joins again gets a
# larger one.
Where = tuple[str, int, int]


class Newcomers:
    """The newcomers that a node knows. `planned`: the nodes of the plan. `own`: this node, if it is a newcomer."""

    def __init__(self, journal: Path, planned: Collection[str], own: Mapping[str, Any]) -> None:
        self._journal, self._planned, self._known = journal, frozenset(planned) - own.keys(), dict[str, Where]()
        self.hear(read_object(journal))
        self.hear(own)

    @property
    def names(self) -> tuple[str, ...]:
        """The newcomers' names, in the order in which they joined."""
        return tuple(sorted(self._known, key=lambda name: (self._known[name][2], name)))

    def where(self, name: str) -> tuple[str, int]:
        """The address and port at which a newcomer answers questions."""
        return self._known[name][:2]

    def addresses(self) -> dict[str, Where]:
        """The newcomers' addresses, in the form in which this node reports them to other nodes."""
        return dict(self._known)

    def hear(self, hosts: object) -> list[str]:
        """Take another node's report of newcomers; return those that are new or have moved. Ignore invalid entries."""
        news = [] if not isinstance(hosts, Mapping) else [(name, _where(hosts[name])) for name in list(hosts)[:_MOST]]
        changed = []
        for name, where in news:
            known = self._known.get(name)
            fits = isinstance(name, str) and _NAME.fullmatch(name) and name not in self._planned
            if where and fits and (known or len(self._known) < _MOST) and (known is None or where[2] > known[2]):
                self._known[name] = where
                changed.append(name)
        if changed:
            with suppress(OSError):
                replace(self._journal, json.dumps(self._known))
        return changed


def _where(entry: object) -> Where | None:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        return None
    address, port, place = entry
    if not (isinstance(address, str) and type(port) is int and type(place) is int):
        return None
    with suppress(ValueError):
        ipaddress.ip_address(address)
        return (address, port, place) if 0 < port < 1 << 16 and 0 <= place < 10_000 else None
    return None
