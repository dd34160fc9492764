"""Which files of a run's folder a fetch asks a host for."""

from deploy.host.files.listing import Listing, Stamp, parse, select

STAMP = Stamp(10, 1)


def test_a_listing_has_the_sent_files_the_copied_files_and_all_files():
    answer = (
        '{"train.py": ["digest", 4, 1]}\n{"work/last.pt": [10, 1, "a"], "home/x": [10, 1, "a"]}\n'
        "81a4 4 1 ./work/train.py\n81a4 10 1 ./work/last.pt\n81a4 10 2 ./home/x\nend\n"
    )
    files = parse(answer)
    assert files.sent == {"work/train.py": Stamp(4, 1)}
    assert files.origin("work/last.pt") == "a"
    assert not files.origin("home/x"), "it has been changed since"
    assert not files.origin("work/train.py")


def test_corrupt_lists_name_no_copies():
    for spoilt in ("", "[]", '{"a": 1}', '{"a": [1]}', '{"a": ["1", 2]}', "{" * 5000):
        files = parse(f"{spoilt}\n{spoilt}\nend\n")
        assert not files.sent
        assert not files.copies


def test_a_copy_is_left_out_if_the_host_that_it_came_from_is_asked_too():
    files = Listing(
        {"work/a.pt": STAMP, "work/b.pt": STAMP}, copies={"work/a.pt": (STAMP, "a"), "work/b.pt": (STAMP, "b")}
    )
    chosen = select(files, (), lambda path, stamp: False, nodes={"a", "c"})
    assert list(chosen.wanted) == ["work/b.pt"]
    assert chosen.leave_out == ["work/a.pt"]


def test_the_agents_pipes_are_left_out_silently_and_the_scripts_own_are_not():
    files = parse("{}\n{}\n11a4 0 1 ./nodes/.a/0.output\n11a4 0 1 ./work/mine\nend\n")
    assert select(files, (), lambda path, stamp: False).leave_out == ["nodes/.a/0.output"]


BLOB, LINK = f"models--a--b/blobs/{'0f' * 32}", f"models--a--b/snapshots/{'a' * 40}/w"
HIDDEN = (
    "{}\n{}\n"
    f"81a4 9000 1 ./home/.cache/hub/{BLOB}\na1ff 80 1 ./home/.cache/hub/{LINK}\n"
    "81a4 10 1 ./home/.cache/mychat/model.pt\n81a4 3 1 ./work/__pycache__/m.cpython-311.pyc\nend\n"
)


def test_results_are_fetched_from_every_folder_and_downloads_stay_on_the_host():
    files = parse(HIDDEN)
    chosen = select(files, (), lambda path, stamp: False)
    assert list(chosen.wanted) == ["home/.cache/mychat/model.pt"]
    assert dict(files.folders_left) == {"home/.cache/hub": 9000, "work": 3}
    assert {"home/.cache/hub", "work"} <= set(chosen.leave_out)


def test_naming_a_download_folder_fetches_it_with_its_links():
    chosen = select(parse(HIDDEN), ["home/.cache/hub"], lambda path, stamp: False)
    assert list(chosen.wanted) == [f"home/.cache/hub/{BLOB}"]
    assert f"home/.cache/hub/{LINK}" not in chosen.leave_out
