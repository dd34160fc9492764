"""Which files a host gets from another before a run starts again."""

from deploy.host.listing import Listing, Stamp
from deploy.hosts.share import differing_files, missing

CKPT = Stamp(10, 1)


def test_a_file_that_a_host_lacks_comes_from_the_first_that_has_it():
    listings = {
        "a": Listing({"work/ckpt.pt": CKPT, "home/x": CKPT}),
        "b": Listing({"work/ckpt.pt": CKPT, "work/b.txt": CKPT}),
        "c": Listing({}),
    }
    assert missing(listings) == {
        ("a", "c"): ["home/x", "work/ckpt.pt"],
        ("a", "b"): ["home/x"],
        ("b", "a"): ["work/b.txt"],
        ("b", "c"): ["work/b.txt"],
    }


def test_sent_files_logs_and_what_is_a_link_there_are_not_copied():
    first = Listing({"work/train.py": CKPT, "logs/rank-0.log": CKPT, "work/last": CKPT}, sent={"work/train.py": CKPT})
    assert missing({"a": first, "b": Listing({}, links=["work/last"])}) == {}


def test_files_of_one_path_with_other_content_are_named_and_copied_nowhere():
    listings = {
        "a": Listing({"work/log": Stamp(1, 1), "work/same": CKPT}),
        "b": Listing({"work/log": Stamp(2, 1), "work/same": CKPT}),
    }
    assert missing(listings) == {}
    assert differing_files(listings) == ["work/log"]


def test_a_copy_is_replaced_when_its_host_has_a_newer_one_and_never_spread_as_an_own_file():
    old, new = Stamp(10, 1), Stamp(10, 7)
    listings = {
        "a": Listing({"work/last.pt": old, "work/rank.txt": Stamp(3, 3)}, copies={"work/last.pt": (old, "b")}),
        "b": Listing({"work/last.pt": new, "work/rank.txt": Stamp(4, 3)}),
        "c": Listing({"work/last.pt": Stamp(11, 5)}, copies={"work/last.pt": (old, "b")}),
    }
    assert missing(listings) == {("b", "a"): ["work/last.pt"], ("a", "c"): ["work/rank.txt"]}
    assert differing_files(listings) == ["work/last.pt", "work/rank.txt"], "c has changed its copy: it is its own"


def test_what_its_host_has_removed_is_not_brought_back():
    copies = {"work/old.pt": (CKPT, "a"), "work/new.pt": (CKPT, "a")}
    listings = {
        "a": Listing({"work/new.pt": CKPT}),
        "b": Listing({"work/old.pt": CKPT, "work/new.pt": CKPT}, copies=copies),
        "c": Listing({}),
    }
    assert missing(listings) == {("a", "c"): ["work/new.pt"]}


def test_where_a_files_host_is_gone_its_copies_are_what_there_is():
    listings = {"b": Listing({"work/last.pt": CKPT}, copies={"work/last.pt": (CKPT, "a")}), "d": Listing({})}
    assert missing(listings) == {("b", "d"): ["work/last.pt"]}
