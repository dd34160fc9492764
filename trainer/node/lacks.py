"""Which files each node of a script lacks, and which other node gives them. Pure.

deploy/hosts/share.py has the same rules for the start of a run; tests/unit/trainer/node/test_lacks.py compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# In place of a node's name: the script wrote the file here, or it is as it was sent.
OWN, SENT = "", "="


class Entry(NamedTuple):
    """A file: its size, the second of its last change, and the node that it came from."""

    size: int
    time: int
    origin: str = OWN


@dataclass(frozen=True)
class Listing:
    """What a node has in `work/` and `home/`: its files by their paths in the run folder, and its links."""

    files: Mapping[str, Entry]
    links: Sequence[str] = ()


def missing(listings: Mapping[str, Listing]) -> dict[tuple[str, str], list[str]]:
    """By source and target node: the files that the target lacks, or has only an old copy of.

    The source is the first node that wrote the file. If all have only copies of it, and the node that wrote it is one
    of them, that node has removed it: nobody gets it.
    """
    sources: dict[str, str] = {}
    for node, here in listings.items():
        for path, entry in sorted(here.files.items()):
            if entry.origin == OWN:
                sources.setdefault(path, node)
    own = frozenset(sources)
    for node, here in listings.items():
        for path, entry in sorted(here.files.items()):
            if entry.origin != SENT and entry.origin not in listings:
                sources.setdefault(path, node)
    pairs: dict[tuple[str, str], list[str]] = {}
    for path, source in sources.items():
        newest = listings[source].files[path][:2]
        for target, there in listings.items():
            present = there.files.get(path)
            if present is None:
                wanted = path not in there.links
            else:
                wanted = path in own and present[:2] != newest and present.origin not in (OWN, SENT)
            if wanted:
                pairs.setdefault((source, target), []).append(path)
    return pairs
