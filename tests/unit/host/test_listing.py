"""What of a run's folder on a host is asked for."""

from deploy.host.listing import Listing, Stamp, parse, select

STAMP = Stamp(10, 1)


def test_a_list_has_what_was_sent_what_was_copied_and_the_files():
    answer = (
        '{"train.py": ["digest", 4, 1]}\n{"work/last.pt": [10, 1], "home/x": [10, 1]}\n'
        "81a4 4 1 ./work/train.py\n81a4 10 1 ./work/last.pt\n81a4 10 2 ./home/x\nend\n"
    )
    files = parse(answer)
    assert files.sent == {"work/train.py": Stamp(4, 1)}
    assert files.is_copy("work/last.pt")
    assert not files.is_copy("home/x"), "it has been changed since"
    assert not files.is_copy("work/train.py")


def test_spoilt_lists_name_no_copies():
    for spoilt in ("", "[]", '{"a": 1}', '{"a": [1]}', '{"a": ["1", 2]}', "{" * 5000):
        files = parse(f"{spoilt}\n{spoilt}\nend\n")
        assert not files.sent
        assert not files.copies


def test_a_copy_stays_where_its_own_host_sends_the_file():
    files = Listing({"work/a.pt": STAMP, "work/b.pt": STAMP}, copies={"work/a.pt": STAMP, "work/b.pt": STAMP})
    chosen = select(files, (), lambda path, stamp: False, elsewhere={"work/a.pt"})
    assert list(chosen.wanted) == ["work/b.pt"]
    assert chosen.leave_out == ["work/a.pt"]
