"""Which files each node of a script does not have, and which other node sends them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

# In place of a node's name: the script wrote the file on this node, or the file is unchanged since it was sent.
OWN, SENT = "", "="
_OUTDATED = "?"
# The number at the end of a folder's name: an epoch or a step.
_NUMBER = re.compile(r"[0-9]+(?=[^/]*$)")


class Entry(NamedTuple):
    """A file: its size, the second of its last change, and the node from which it came."""

    size: int
    time: int
    origin: str = OWN


@dataclass(frozen=True)
class Listing:
    """The content of a node's `work/` and `home/`: its files by their paths in the run folder, and its links."""

    files: Mapping[str, Entry]
    links: Sequence[str] = ()


def find_missing(listings: Mapping[str, Listing]) -> dict[tuple[str, str], list[str]]:
    """For each source and target node: the files that the target does not have, or has only an old copy of.

    The source is the first node that wrote the file, or that has the newest copy. If all nodes have only copies of it,
    and the node that wrote it is one of them, that node has removed the file: no node gets it. A node that has written
    no file itself has removed nothing: its disk is new.
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


def find_outdated(listings: Mapping[str, Listing], stale: Collection[str]) -> dict[str, list[str]]:
    """For each node: the files that it wrote, and that another node wrote while these `stale` nodes were away.

    If all nodes are stale, as at the start of a run, no node has continued without the others.
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


def with_outdated(listings: Mapping[str, Listing], old: Mapping[str, Collection[str]]) -> dict[str, Listing]:
    """The listings, with each node's `old` files marked as copies, so that a newer file replaces them."""
    made = dict(listings)
    for node, paths in old.items():
        here = listings[node].files
        replaced = {path: Entry(here[path].size, here[path].time, _OUTDATED) for path in paths}
        made[node] = Listing({**here, **replaced}, listings[node].links)
    return made


def find_torn(listings: Mapping[str, Listing], lost: Collection[str]) -> list[str]:
    """The checkpoint folders whose other part was only on a `lost` node: no rank may continue from them.

    The evidence is an older folder next to it, whose name differs only in a number, and in which both the same node and
    the lost node have written.
    """
    writers: dict[str, dict[str, int]] = {}
    for node, here in listings.items():
        for path, entry in here.files.items():
            if entry.origin != SENT:
                times = writers.setdefault(path.rpartition("/")[0], {})
                name = entry.origin or node
                times[name] = max(entry.time, times.get(name, 0))
    # Keyed by a folder's name without numbers, the lost node and the other node: when the other one first wrote there.
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


def without_folders(listings: Mapping[str, Listing], folders: Collection[str]) -> dict[str, Listing]:
    """The listings without the files in these folders."""
    left = {*folders}
    return {
        node: Listing({path: e for path, e in here.files.items() if path.rpartition("/")[0] not in left}, here.links)
        for node, here in listings.items()
    }
