"""Which files each node of a script lacks, and which other node gives them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

# In place of a node's name: the script wrote the file here, or it is as it was sent.
OWN, SENT = "", "="
_OLD = "?"
# At the end of a folder's name: epochs and steps.
_NUMBER = re.compile(r"[0-9]+(?=[^/]*$)")


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

    The source is the first node that wrote the file, or has the newest copy. If all have only copies of it, and the
    node that wrote it is one of them, that node has removed it: no node gets it. A node without any file of its own has
    removed nothing: its disk is new.
    """
    wrote = {node for node, here in listings.items() if any(entry.origin == OWN for entry in here.files.values())}
    sources: dict[str, str] = {}
    for node, here in listings.items():
        for path, entry in sorted(here.files.items()):
            if entry.origin == OWN:
                sources.setdefault(path, node)
    own = frozenset(sources)
    for node, here in listings.items():
        for path, entry in sorted(here.files.items()):
            if path in own or entry.origin == SENT or entry.origin in wrote:
                continue
            before = sources.setdefault(path, node)
            if entry.time > listings[before].files[path].time:
                sources[path] = node
    pairs: dict[tuple[str, str], list[str]] = {}
    for path, source in sources.items():
        newest = listings[source].files[path][:2]
        for target, listing in listings.items():
            present = listing.files.get(path)
            if present is None:
                wanted = path not in listing.links
            else:
                wanted = present[:2] != newest and present.origin not in (OWN, SENT)
            if wanted:
                pairs.setdefault((source, target), []).append(path)
    return pairs


def outdated(listings: Mapping[str, Listing], stale: Collection[str]) -> dict[str, list[str]]:
    """By node: the files that it wrote, and that another one has written while these `stale` nodes were away.

    If all are stale, as at a run's start, no node has continued without the others.
    """
    newer = {
        path
        for node, here in listings.items()
        if node not in stale
        for path, entry in here.files.items()
        if entry.origin == OWN
    }
    return {
        node: [path for path, entry in listings[node].files.items() if entry.origin == OWN and path in newer]
        for node in stale
    }


def without(listings: Mapping[str, Listing], old: Mapping[str, Collection[str]]) -> dict[str, Listing]:
    """The listings, in which the `old` files of a node are copies that a newer one replaces."""
    made = dict(listings)
    for node, paths in old.items():
        here = listings[node].files
        replaced = {path: Entry(here[path].size, here[path].time, _OLD) for path in paths}
        made[node] = Listing({**here, **replaced}, listings[node].links)
    return made


def torn(listings: Mapping[str, Listing], lost: Collection[str]) -> list[str]:
    """The folders of checkpoints whose other part was only on a `lost` node: no rank may continue from them.

    In an older folder beside it, whose name differs by a number, the same node and the lost one have both written.
    """
    writers: dict[str, dict[str, int]] = {}
    for node, here in listings.items():
        for path, entry in here.files.items():
            if entry.origin != SENT:
                times = writers.setdefault(path.rpartition("/")[0], {})
                name = entry.origin or node
                times[name] = max(entry.time, times.get(name, 0))
    # By a folder's name without numbers, the lost node and the other one: when the other wrote first beside it.
    first: dict[tuple[str, str, str], int] = {}
    for folder, times in writers.items():
        for gone, node in product(times.keys() & {*lost}, times.keys() - {*lost}):
            alike = _NUMBER.sub("", folder), gone, node
            first[alike] = min(times[node], first.get(alike, times[node]))
    folders = []
    for folder, times in writers.items():
        pairs = product({*lost} - times.keys(), times.keys() - {*lost})
        name = _NUMBER.sub("", folder)
        if any(times[node] > first.get((name, gone, node), times[node]) for gone, node in pairs):
            folders.append(folder)
    return sorted(folders)


def less(listings: Mapping[str, Listing], folders: Collection[str]) -> dict[str, Listing]:
    """The listings without what is in these folders."""
    left = {*folders}
    return {
        node: Listing({path: e for path, e in here.files.items() if path.rpartition("/")[0] not in left}, here.links)
        for node, here in listings.items()
    }
