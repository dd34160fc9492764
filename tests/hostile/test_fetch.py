"""`fetch`: whatever a host sends as a run folder, it changes nothing outside that folder, nor our own files in it."""

import json
import os
import re
import tarfile
import threading

import pytest

from deploy.door import framing
from deploy.host.files import gather, unpack
from tests.hostile.server import Answer, drip, look

EVIL = b"ssh-ed25519 AAAA evil\n"


def member(name, data=b"", kind=tarfile.REGTYPE, link="", **more):
    """One member, as its bytes are in a stream."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % 512)


def archive(*members):
    return b"".join(members) + b"\0" * 1024


def link(name, to):
    return member(name, kind=tarfile.SYMTYPE, link=to)


GOOD = member("./logs/rank-0.log", b"well\n")
# The trick of CVE-2025-4517: each link in a chain is short, but the resolved path is longer than realpath follows.
CHAIN = [link(f"{'d' * 200}{n}", "d" * 200 + (str(n - 1) if n else "")) for n in range(16)]


def attacks(home):
    """Archive members that would harm `home`, by what they attempt."""
    ssh, keys = f"{home}/.ssh", "authorized_keys"
    folder = member("s", kind=tarfile.DIRTYPE)
    devices = [member("p", kind=tarfile.FIFOTYPE), member("d", kind=tarfile.CHRTYPE, devmajor=1, devminor=3)]
    chained = [*CHAIN, link("e", f"{'d' * 200}15/../../../../home"), member("e/important", EVIL)]
    records = ("RECORD.json", "record.json.", "\uff52ecord.json")
    return {
        "absolute": [member(f"{ssh}/{keys}", EVIL)],
        "dots": [member(f"../../../home/.ssh/{keys}", EVIL), member("a/../../../x", EVIL)],
        "link, then through it": [link("s", ssh), member(f"s/{keys}", EVIL)],
        "link over a folder": [folder, link("s", ssh), member(f"s/{keys}", EVIL)],
        "chain of long links": chained,
        "link as a file": [link("important", f"{home}/important"), member("important", EVIL)],
        "hard link": [member("h", kind=tarfile.LNKTYPE, link=f"{home}/important"), member("h", EVIL)],
        "hard link to ours": [member("h", kind=tarfile.LNKTYPE, link="record.json"), member("h", EVIL)],
        "pipe and device": devices,
        "setuid": [member("run", b"#!/bin/sh\n", mode=0o6777)],
        "our record": [member("record.json", b"{}")],
        "our record by another way": [member(name, b"{}") for name in ("././record.json", ".//record.json")],
        "our record by another name": [member(name, b"{}") for name in records],
        "our report": [
            member(name, b"{}") for name in ("report.html ", "Report.HTML", "outcome.json", "preflight.json")
        ],
        "our record as a folder": [member("record.json/x", b"{}"), member("hosts/other/x", b"{}")],
        "our log": [member("logs/evil.log", b"lies"), member("LOGS/EVIL.log", b"lies")],
        "ours on their way": [member(f"{name}.1", b"{}") for name in (".record.json", ".report", ".fetch-1-evil/x")],
        "odd names": [member(name, b"x") for name in ("a\nb", "c\x1b]52;c;x\x07", "\u202egnp", "d\udcff", "x" * 300)],
        "deep": [member("d/" * 90 + "x", b"x")],
        "times of no calendar": [member("t", b"x", mtime=2**63 - 1), member("u", b"x", mtime=-(2**40))],
    }


BROKEN = {
    "not an archive": b"hello\n" * 400,
    "cut in a file": archive(GOOD, member("big", b"x" * 5000))[:2000],
    "cut between files": GOOD,
    "a wrong sum": GOOD + member("x", b"y").replace(b"x\0", b"z\0", 1) + b"\0" * 1024,
    "a size below nothing": GOOD + member("x", size=-5),
    "a size beyond all": GOOD + member("x", size=2**62),
    "a name of a gigabyte": GOOD + member("././@LongLink", kind=tarfile.GNUTYPE_LONGNAME, size=1 << 30),
    "a header of records without end": GOOD + member("x", b"9" * 600, kind=tarfile.XHDTYPE, size=600),
    "a file with holes": GOOD + member("x", kind=tarfile.GNUTYPE_SPARSE, size=1 << 40),
    "nothing": b"",
}


def listed(*files, manifest="{}"):
    """What list-files prints: files as path and size, all with second 0 as their time."""
    rows = [f"81a4 {size} 0 ./{path}\n" for path, size in files]
    return f"{manifest}\n{{}}\n{''.join(rows)}end\n".encode()


LISTED = listed(("logs/rank-0.log", 1_000_000))


def answers(sent, files=LISTED, run="R"):
    return {"send-run-folder": lambda asked: Answer(sent), "list-files": files, "look": look(runs=[run])}


def fetched(rig, hosts="evil"):
    (rig.runs / "R").mkdir(exist_ok=True)
    (rig.runs / "R/record.json").write_text(json.dumps({"backend": "hosts", "nodes": ["evil"], "arguments": []}))
    (rig.runs / "R/logs").mkdir(exist_ok=True)
    (rig.runs / "R/logs/evil.log").write_text("mine\n")
    done = rig.task("fetch", "--hosts", hosts, "--run", "R", within_s=30)
    assert json.loads((rig.runs / "R/record.json").read_text())["backend"] == "hosts"
    assert (rig.runs / "R/logs/evil.log").read_text() == "mine\n"
    assert not list((rig.runs / "R").glob(".fetch-*"))
    assert rig.harm("R") == []
    return done


@pytest.mark.holds("unpacked-inside")
@pytest.mark.parametrize("attack", attacks(""))
def test_an_archive_harms_nothing_and_the_rest_of_it_comes_home(hostile, attack):
    rig = hostile({})
    rig.servers["evil"].answers = answers(archive(*attacks(rig.home)[attack], GOOD))
    done = fetched(rig)
    assert done.code == 0, done.output
    assert (rig.runs / "R/logs/rank-0.log").read_text() == "well\n"
    assert not [path for path in (rig.runs / "R").rglob("*") if path.is_symlink() or path.lstat().st_mode & 0o6000]
    if attack not in ("setuid", "times of no calendar"):
        assert "evil: not copied: " in done.err


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_archive_is_blamed_on_its_host(hostile, broken):
    rig = hostile(answers(BROKEN[broken]), good=answers(archive(member("logs/rank-1.log", b"fine\n"))))
    done = fetched(rig, "evil,good")
    assert done.code == 1, done.output
    assert "evil: its copy of R is incomplete: " in done.err
    assert (rig.runs / "R/logs/rank-1.log").read_text() == "fine\n"
    if broken not in ("not an archive", "nothing"):
        assert (rig.runs / "R/logs/rank-0.log").read_text() == "well\n"


def test_two_hosts_cannot_do_together_what_one_cannot(hostile):
    """One host sends only links, the other only plain files."""
    rig = hostile({}, other=answers(archive(member("s/authorized_keys", EVIL), member("keys", EVIL))))
    ssh = str(rig.home / ".ssh")
    rig.servers["evil"].answers = answers(archive(link("s", ssh), link("keys", f"{ssh}/authorized_keys"), GOOD))
    done = fetched(rig, "evil,other")
    assert done.code == 0, done.output


def test_a_local_link_is_not_followed(hostile):
    rig = hostile(answers(archive(member("ranks/x", EVIL), member("important", EVIL), GOOD)))
    (rig.runs / "R").mkdir()
    os.symlink(rig.home / ".ssh", rig.runs / "R/ranks")
    os.symlink(rig.home / "important", rig.runs / "R/important")
    done = rig.task("fetch", "--hosts", "evil", "--run", "R")
    assert done.code == 0, done.output
    assert sorted(rig.harm("R")) == ["work/runs/R/important", "work/runs/R/ranks"]  # still links, as before
    assert "'ranks/x' cannot be written here" in done.err
    assert "'important' cannot be written here: this name is a link" in done.err


def test_sending_more_than_announced_ends_that_hosts_part(hostile, monkeypatch):
    monkeypatch.setattr(gather, "_GROWS", 0)
    large = member("large", b"x" * 40_000)
    junk = answers(archive(GOOD), b"junk")
    rig = hostile(answers(archive(GOOD, large, large), listed(("large", 50_000))), bomb=junk)
    done = fetched(rig, "evil,bomb")
    assert done.code == 1
    assert "'large' in it has 40 kB: it announced 56 kB in all" in done.err
    assert "bomb: its list of files is incomplete" in done.err


def test_a_host_that_announces_more_than_the_disk_can_hold_is_asked_for_nothing(hostile):
    rig = hostile(answers(archive(GOOD), listed(("x", 10**15))), good=answers(archive(GOOD)))
    done = fetched(rig, "evil,good")
    assert done.code == 1
    assert "evil: its files need up to" in done.err
    assert not [asked for asked in rig.servers["evil"].asked if "send-run-folder" in asked.argv]
    assert (rig.runs / "R/logs/rank-0.log").exists()


def test_an_archive_that_comes_byte_by_byte_ends(hostile, monkeypatch):
    monkeypatch.setattr(framing, "SLOWEST_OVER_S", 0.5)
    over = threading.Event()
    rig = hostile({**answers(b""), "send-run-folder": lambda asked: Answer(drip(b"x", 0.05, over))})
    done = fetched(rig)
    over.set()
    assert done.code == 1
    assert "its copy of R is incomplete" in done.err
    assert "in 0.5 s" in done.err


def test_a_stream_of_empty_files_ends(hostile, monkeypatch):
    monkeypatch.setattr(unpack, "MOST_MEMBERS", 500)
    rig = hostile(answers(member(f"f/{number}") for number in range(10**9)))
    done = fetched(rig)
    assert "it has more than 502 files" in done.err, "500 and as many files and folders as were asked for"


def test_an_endless_list_of_files_is_blamed_on_its_host(hostile, monkeypatch):
    monkeypatch.setattr(gather, "MOST_LIST", 1 << 20)
    rig = hostile(answers(archive(GOOD), b"{}\n" + b"81a4 1 0 ./x\n" * (1 << 20)), good=answers(archive(GOOD)))
    done = fetched(rig, "evil,good")
    assert "evil: its list of files is longer than" in done.err
    assert (rig.runs / "R/logs/rank-0.log").exists()


def test_more_files_than_fit_into_an_answer_come_home(hostile):
    """Muster reads 17 MB of names and reports how many of those files were not sent."""
    names = [f"work/{number}/{'n' * 200}" for number in range(80_000)]
    rig = hostile(answers(archive(member(f"./{names[0]}", b"x")), listed(*((name, 1) for name in names))))
    done = fetched(rig)
    assert done.code == 0, done.err
    assert (rig.runs / "R" / names[0]).read_bytes() == b"x"
    assert "79,999 files did not arrive" in done.err


def test_identical_files_of_two_hosts_are_kept_once_and_different_ones_apart(hostile):
    same = member("checkpoints/step-00000001/state.pt", b"weights") + member("a", b"1") + member("A", b"1")
    rig = hostile(
        answers(archive(same, member("out.txt", b"a"))), second=answers(archive(same, member("out.txt", b"b")))
    )
    done = fetched(rig, "evil,second")
    assert done.code == 0, done.output
    assert (rig.runs / "R/out.txt").read_bytes() == b"a"
    assert (rig.runs / "R/hosts/second/out.txt").read_bytes() == b"b"
    assert (rig.runs / "R/a").exists()
    assert (rig.runs / "R/A").exists()
    assert [path.name for path in (rig.runs / "R/hosts").iterdir()] == ["second"]
    assert re.search(r"second: 1 file .*runs/R/hosts/second", done.err)


def test_a_real_run_comes_home_whole(hostile):
    """Uses the real commands: long names, deep folders, a file of some MB; then fetches again over the first copy."""
    rig = hostile({"look": look(runs=["R"])})
    run = rig.servers["evil"].home / ".muster/runs/R"
    deep = run / "/".join(["checkpoints", *["deep" * 20] * 4])
    deep.mkdir(parents=True)
    state = os.urandom(3 << 20)
    (deep / ("n" * 200)).write_bytes(state)
    (run / "metrics.jsonl").write_text("{}\n")
    (run / "empty").mkdir()
    for _ in range(2):
        done = fetched(rig)
        assert done.code == 0, done.output
        assert "not copied" not in done.err
    home = rig.runs / "R"
    assert (home / deep.relative_to(run) / ("n" * 200)).read_bytes() == state
    assert (home / "metrics.jsonl").read_text() == "{}\n"
