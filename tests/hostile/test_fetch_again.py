"""`fetch` copies only requested files that are not here yet, and loses nothing when interrupted; real commands."""

import json
import os

import pytest

from tests.hostile.server import Answer, look
from tests.hostile.test_fetch import archive, listed, member

_BLOB = "huggingface/hub/models--a--b/blobs/" + "0f" * 32


@pytest.fixture
def rig(hostile):
    """A host with a script's run, as the agent leaves it."""
    made = hostile({"look": look(runs=["R"])}, other={"look": look(runs=["R"])})
    run = made.servers["evil"].home / ".muster/runs/R"
    for path, text in {
        "work/train.py": "sent",
        "work/data.csv": "sent, then changed",
        "work/outputs/ckpt.pt": "weights",
        "work/outputs/deep/er/a b'$(x) \\n[*].txt": "odd name",
        "work/__pycache__/train.pyc": "cache",
        f"home/.cache/{_BLOB}": "download",
        "home/.cache/mychat/model_000030.pt": "weights",
        "home/notes.txt": "mine",
        "logs/rank-0.log": "said",
        "nodes/.evil.last": "",
        ".sent.lock": "",
    }.items():
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_text(text)
        os.utime(run / path, (1000, 1000))
    manifest = {"train.py": ["x", 4, 1000], "data.csv": ["x", 4, 1000]}
    (run / "sent.json").write_text(json.dumps(manifest))
    made.run, made.home_run = run, made.runs / "R"
    return made


def fetch(rig, *words, hosts="evil"):
    done = rig.task("fetch", "--hosts", hosts, "--run", "R", *words)
    assert rig.harm("R") == []
    return done


def files(rig):
    paths = (path.relative_to(rig.home_run).as_posix() for path in rig.home_run.rglob("*") if path.is_file())
    return sorted(path for path in paths if path not in (".fetched.json", "report.html"))


def transfers(rig):
    return [asked for asked in rig.servers["evil"].asked if "send-run-folder" in asked.argv]


def test_written_files_are_fetched_but_not_downloads_or_unchanged_sent_files(rig):
    done = fetch(rig)
    assert done.code == 0, done.output
    assert files(rig) == [
        "home/.cache/mychat/model_000030.pt",
        "home/notes.txt",
        "logs/rank-0.log",
        "work/data.csv",
        "work/outputs/ckpt.pt",
        "work/outputs/deep/er/a b'$(x) \\n[*].txt",
    ]
    assert "13 B that can be downloaded again stays there (home/.cache/huggingface, work/__pycache__)" in done.err
    assert "--only home/.cache/huggingface copies it" in done.err


def test_an_odd_record_keeps_no_file_from_being_fetched(rig):
    rig.home_run.mkdir(parents=True)
    (rig.home_run / "record.json").write_text('{"nodes": 7}')
    done = fetch(rig, "--only", "logs")
    assert done.code == 0, done.output
    assert "logs/rank-0.log" in files(rig)


@pytest.mark.parametrize(
    ("patterns", "come"),
    [
        (["work/outputs/*.pt"], ["work/outputs/ckpt.pt"]),
        (["work/outputs/deep"], ["work/outputs/deep/er/a b'$(x) \\n[*].txt"]),
        (["home/.cache/huggingface", "work/train.py"], [f"home/.cache/{_BLOB}", "work/train.py"]),
        (["nothing"], []),
    ],
)
def test_patterns_choose_files_including_downloads_and_sent_files(rig, patterns, come):
    done = fetch(rig, *(word for pattern in patterns for word in ("--only", pattern)))
    assert done.code == 0, done.output
    assert files(rig) == come


def test_a_second_fetch_takes_only_changed_and_locally_missing_files(rig):
    fetch(rig)
    count = len(transfers(rig))
    assert fetch(rig).code == 0
    assert len(transfers(rig)) == count  # nothing was requested
    (rig.run / "work/outputs/ckpt.pt").write_text("better weights")
    (rig.home_run / "home/notes.txt").unlink()
    done = fetch(rig)
    assert "evil: 2 files came; 4 were here already" in done.err
    assert (rig.home_run / "work/outputs/ckpt.pt").read_text() == "better weights"
    assert (rig.home_run / "home/notes.txt").read_text() == "mine"


def test_a_fetch_after_a_broken_connection_keeps_whole_files_and_continues(rig):
    server = rig.servers["evil"]
    stream = archive(member("work/outputs/ckpt.pt", b"weights", mtime=1000), member("logs/rank-0.log", b"said"))
    server.answers = {**server.answers, "send-run-folder": lambda asked: Answer(stream[: 512 + 512 + 512 + 2])}
    done = fetch(rig)
    assert done.code == 1
    assert "to continue: muster fetch" in done.err
    assert files(rig) == ["work/outputs/ckpt.pt"]  # the truncated file is not there, not even in part
    del server.answers["send-run-folder"]
    done = fetch(rig)
    assert done.code == 0, done.output
    assert "evil: 5 files came; 1 were here already" in done.err
    assert len(files(rig)) == 6


def test_a_killed_fetch_can_be_continued(rig):
    left = rig.home_run / ".fetch-evil"
    for path, text, time in (
        ("work/outputs/ckpt.pt", "weights", 1000),  # complete
        ("home/notes.txt", "min", 1000),  # incomplete
        ("logs/rank-0.log", "said", 2000),  # full size, but its time shows that it was not finished
        ("work/gone.txt", "gone", 1000),  # no longer on the host
    ):
        (left / path).parent.mkdir(parents=True, exist_ok=True)
        (left / path).write_text(text)
        os.utime(left / path, (time, time))
    done = fetch(rig)
    assert done.code == 0, done.output
    assert "evil: 5 files came; 1 were here already" in done.err
    assert (rig.home_run / "home/notes.txt").read_text() == "mine"
    assert not (rig.home_run / "work/gone.txt").exists()
    assert not left.exists()


def test_hosts_keep_their_own_files_when_one_is_fetched_later(rig):
    """Two hosts have the same path and time with different content: both are copied, in whatever order."""
    run = rig.servers["other"].home / ".muster/runs/R/work/outputs"
    run.mkdir(parents=True)
    (run / "ckpt.pt").write_text("WEIGHTS")
    os.utime(run / "ckpt.pt", (1000, 1000))
    assert fetch(rig, hosts="other").code == 0
    for _ in range(2):
        assert fetch(rig, hosts="evil,other").code == 0
        assert (rig.home_run / "work/outputs/ckpt.pt").read_text() == "WEIGHTS"
        assert (rig.home_run / "hosts/evil/work/outputs/ckpt.pt").read_text() == "weights"


@pytest.mark.holds("unpacked-inside")
def test_a_folder_that_becomes_a_link_before_it_is_sent_is_not_followed(rig):
    """The list has a file in a folder; a container then replaces that folder with a link into the host's home."""
    secret = rig.servers["evil"].home / ".ssh"
    secret.mkdir()
    (secret / "ckpt.pt").write_text("PRIVATE KEY")
    rig.servers["evil"].answers["list-files"] = listed(("work/outputs/ckpt.pt", 7))
    (rig.run / "work/outputs").rename(rig.run / "work/before")
    (rig.run / "work/outputs").symlink_to(secret)
    done = fetch(rig)
    assert "PRIVATE KEY" not in "".join(path.read_text() for path in rig.home_run.rglob("*.pt"))
    assert "'./work/outputs' is a link" in done.err


def test_only_one_fetch_of_a_run_works_at_a_time(rig):
    from deploy.run.files import locks

    rig.home_run.mkdir()
    lock = locks.hold(rig.home_run / ".fetch-lock")
    done = fetch(rig)
    assert done.code == 1
    assert "another fetch of this run is running" in done.err
    lock.release()
