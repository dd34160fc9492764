"""The rules by which nodes share files before an attempt are those of a start."""

import random

from deploy.core.names import node_of
from deploy.host.listing import Listing as Listed
from deploy.host.listing import Stamp
from deploy.hosts import share as at_a_start
from trainer.node import lacks
from trainer.node.lacks import OWN, SENT, Entry, Listing


def listed(listing):
    """The same listing as the control side has it."""
    stamps = {path: Stamp(entry.size, entry.time) for path, entry in listing.files.items()}
    copies = {path: (stamps[path], entry.origin) for path, entry in listing.files.items() if entry.origin not in "="}
    sent = {path: stamps[path] for path, entry in listing.files.items() if entry.origin == SENT}
    return Listed(stamps, listing.links, sent=sent, copies=copies)


def random_listing(draw):
    names = [f"work/{number}" for number in range(5)]
    origins = (OWN, OWN, SENT, node_of("a"), node_of("b"), node_of("gone"))
    present = [name for name in names if draw.random() < 0.7]
    files = {name: Entry(draw.randint(1, 2), draw.randint(1, 2), draw.choice(origins)) for name in present}
    return Listing(files, [name for name in names if name not in files and draw.random() < 0.2])


def test_the_nodes_follow_the_rules_of_a_start():
    draw, moved = random.Random(12), 0
    for _ in range(1000):
        listings = {node_of(host): random_listing(draw) for host in ("a", "b", "c")}
        wanted = at_a_start.missing({host: listed(listings[node_of(host)]) for host in ("a", "b", "c")})
        found = lacks.missing(listings)
        assert found == {(node_of(source), node_of(target)): paths for (source, target), paths in wanted.items()}
        moved += len(found)
    assert moved
