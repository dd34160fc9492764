"""The rules by which nodes share files before an attempt are those of a start."""

import random

from deploy.core.names import node_of
from deploy.host.listing import Listing as Listed
from deploy.host.listing import Stamp
from deploy.hosts import share as at_a_start
from trainer.node import missing_files
from trainer.node.missing_files import OWN, SENT, Entry, Listing


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
        found = missing_files.missing(listings)
        assert found == {(node_of(source), node_of(target)): paths for (source, target), paths in wanted.items()}
        moved += len(found)
    assert moved


def test_what_others_wrote_while_a_node_was_away_replaces_its_own():
    ours = {"work/last.pt": Entry(1, 50), "work/own.pt": Entry(1, 50)}
    theirs = {"work/last.pt": Entry(1, 90), "work/own.pt": Entry(1, 40, "a")}
    listings = {"a": Listing(ours), "b": Listing(theirs), "c": Listing({"work/last.pt": Entry(1, 45, "a")})}
    old = missing_files.outdated(listings, ["a"])
    assert old == {"a": ["work/last.pt"]}
    pairs = missing_files.missing(missing_files.without(listings, old))
    assert pairs == {
        ("b", "a"): ["work/last.pt"],
        ("b", "c"): ["work/last.pt"],
        ("a", "b"): ["work/own.pt"],
        ("a", "c"): ["work/own.pt"],
    }
    assert missing_files.outdated(listings, list(listings)) == {name: [] for name in listings}


def test_of_the_copies_of_a_lost_nodes_file_the_newest_goes_to_all():
    listings = {name: Listing({"work/last.pt": Entry(1, at, "gone")}) for name, at in (("b", 50), ("c", 90))}
    assert missing_files.missing(listings) == {("c", "b"): ["work/last.pt"]}


def test_a_node_with_a_new_disk_gets_back_what_it_wrote_and_one_that_removed_a_file_does_not():
    copy = Listing({"work/last.pt": Entry(1, 50, "a")})
    assert missing_files.missing({"a": Listing({"work/train.py": Entry(1, 1, SENT)}), "b": copy}) == {
        ("b", "a"): ["work/last.pt"]
    }
    assert missing_files.missing({"a": Listing({"work/other.pt": Entry(1, 1)}), "b": copy}) == {
        ("a", "b"): ["work/other.pt"]
    }


def test_a_checkpoint_whose_other_part_is_lost_is_torn_and_a_ranks_own_folder_is_not():
    files = {
        "work/out/step-1/model.pt": Entry(1, 50, "gone"),
        "work/out/step-1/rng-1.pt": Entry(1, 51),
        "work/out/step-2/rng-1.pt": Entry(1, 90),
        "work/out/of-rank-0/log.bin": Entry(1, 50, "gone"),
        "work/out/of-rank-1/log.bin": Entry(1, 90),
        "work/last.pt": Entry(1, 95),
    }
    listings = {"a": Listing(files)}
    assert missing_files.torn(listings, ["gone"]) == ["work/out/step-2"]
    assert missing_files.torn(listings, []) == []
    assert missing_files.less(listings, ["work/out/step-2"])["a"].files.keys() == files.keys() - {
        "work/out/step-2/rng-1.pt"
    }
    apart = {"work/of-0/model.pt": Entry(1, 50, "gone"), "work/of-1/model.pt": Entry(1, 90)}
    assert missing_files.torn({"a": Listing(apart)}, ["gone"]) == []
