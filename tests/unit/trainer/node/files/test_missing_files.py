"""Which files a node gets from another before an attempt."""

from trainer.node.files import missing_files
from trainer.node.files.missing_files import SENT, Entry, Listing

CKPT = Entry(10, 1)


def test_a_file_that_a_node_lacks_comes_from_the_first_that_has_it():
    listings = {
        "a": Listing({"work/ckpt.pt": CKPT, "home/x": CKPT}),
        "b": Listing({"work/ckpt.pt": CKPT, "work/b.txt": CKPT}),
        "c": Listing({}),
    }
    assert missing_files.find_missing(listings) == {
        ("a", "c"): ["home/x", "work/ckpt.pt"],
        ("a", "b"): ["home/x"],
        ("b", "a"): ["work/b.txt"],
        ("b", "c"): ["work/b.txt"],
    }


def test_sent_files_links_and_files_with_other_content_are_not_copied():
    first = Listing({"work/train.py": Entry(10, 1, SENT), "work/last": CKPT, "work/log": Entry(1, 1)})
    second = Listing({"work/log": Entry(2, 1)}, links=["work/last"])
    assert missing_files.find_missing({"a": first, "b": second}) == {}


def test_a_copy_is_replaced_by_its_nodes_newer_file_and_never_spread_as_an_own_file():
    listings = {
        "a": Listing({"work/last.pt": Entry(10, 1, "b"), "work/rank.txt": Entry(3, 3)}),
        "b": Listing({"work/last.pt": Entry(10, 7), "work/rank.txt": Entry(4, 3)}),
        "c": Listing({"work/last.pt": Entry(11, 5)}),
    }
    assert missing_files.find_missing(listings) == {("b", "a"): ["work/last.pt"], ("a", "c"): ["work/rank.txt"]}


def test_a_file_that_its_node_has_removed_is_not_brought_back():
    copy = Entry(10, 1, "a")
    listings = {
        "a": Listing({"work/new.pt": CKPT}),
        "b": Listing({"work/old.pt": copy, "work/new.pt": copy}),
        "c": Listing({}),
    }
    assert missing_files.find_missing(listings) == {("a", "c"): ["work/new.pt"]}


def test_files_that_others_wrote_while_a_node_was_away_replace_its_own():
    ours = {"work/last.pt": Entry(1, 50), "work/own.pt": Entry(1, 50)}
    theirs = {"work/last.pt": Entry(1, 90), "work/own.pt": Entry(1, 40, "a")}
    listings = {"a": Listing(ours), "b": Listing(theirs), "c": Listing({"work/last.pt": Entry(1, 45, "a")})}
    old = missing_files.find_outdated(listings, ["a"])
    assert old == {"a": ["work/last.pt"]}
    pairs = missing_files.find_missing(missing_files.with_outdated(listings, old))
    assert pairs == {
        ("b", "a"): ["work/last.pt"],
        ("b", "c"): ["work/last.pt"],
        ("a", "b"): ["work/own.pt"],
        ("a", "c"): ["work/own.pt"],
    }
    assert missing_files.find_outdated(listings, list(listings)) == {name: [] for name in listings}


def test_the_newest_copy_of_a_lost_nodes_file_goes_to_all():
    listings = {name: Listing({"work/last.pt": Entry(1, at, "gone")}) for name, at in (("b", 50), ("c", 90))}
    assert missing_files.find_missing(listings) == {("c", "b"): ["work/last.pt"]}


def test_a_node_with_a_new_disk_gets_back_what_it_wrote_and_one_that_removed_a_file_does_not():
    copy = Listing({"work/last.pt": Entry(1, 50, "a")})
    assert missing_files.find_missing({"a": Listing({"work/train.py": Entry(1, 1, SENT)}), "b": copy}) == {
        ("b", "a"): ["work/last.pt"]
    }
    assert missing_files.find_missing({"a": Listing({"work/other.pt": Entry(1, 1)}), "b": copy}) == {
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
    assert missing_files.find_torn(listings, ["gone"]) == ["work/out/step-2"]
    assert missing_files.find_torn(listings, []) == []
    assert missing_files.without_folders(listings, ["work/out/step-2"])["a"].files.keys() == files.keys() - {
        "work/out/step-2/rng-1.pt"
    }
    apart = {"work/of-0/model.pt": Entry(1, 50, "gone"), "work/of-1/model.pt": Entry(1, 90)}
    assert missing_files.find_torn({"a": Listing(apart)}, ["gone"]) == []


def test_a_script_may_have_a_folder_for_each_of_many_samples():
    # Comparing each folder with every other one took half an hour for these files.
    files = {f"work/data/{number}/x": Entry(1, 50) for number in range(20_000)}
    files |= {"work/data/7/y": Entry(1, 40, "gone"), "work/data/8/x": Entry(1, 60)}
    assert missing_files.find_torn({"a": Listing(files)}, ["gone"]) == ["work/data/8"]
