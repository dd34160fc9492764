"""An outgoing folder is sent to a host as files; the host's receiving script runs here, with a home of its own."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.door.session import Done
from deploy.job.inventory import Host
from deploy.send.folder import content, folder_memory, folder_push, folder_stream, left_out, selection
from deploy.send.folder.content import Entry
from deploy.send.folder.credentials import NO_CHOICE, SendChoice
from deploy.send.folder.folder_look import FolderLook
from deploy.send.folder.folder_push import HostFolders, Outgoing
from deploy.send.road.road import Road
from trainer.node.files import work

# These tests start other programs.
pytestmark = pytest.mark.long


class Here:
    """A host: this machine, with a home of its own.

    `used`: the digests that a container uses. `most`: the bytes of input that arrive before the connection is cut.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.used, self.most, self.sent = home, set[str](), None, 0
        self.name, self.host = "here", Host("here", "here")
        (home / "bin").mkdir(parents=True)
        docker = home / "bin/docker"
        label = "label=${5#label=muster.}; label=${label#folder=}; label=${label#data.}"
        docker.write_text(f'#!/bin/sh\n{label}\ngrep -qxF "$label" {home}/used && echo container; exit 0\n')
        docker.chmod(0o755)

    def run(self, argv, *, input=None, timeout_s=60, check=True, moving=False):
        (self.home / "used").write_text("\n".join(self.used))
        data = b"".join(input or ())
        self.sent = len(data)
        path = f"{self.home}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            argv, input=data[: self.most], env={"HOME": str(self.home), "PATH": path}, capture_output=True, check=False
        )
        assert not (check and done.returncode), done.stderr
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    @property
    def folders(self) -> dict[str, Path]:
        """The folders on the host, by digest or another name."""
        return self.kept("folders")

    def kept(self, kind: str) -> dict[str, Path]:
        return {path.name: path for place in self.home.glob(f".muster/{kind}/*") for path in place.iterdir()}


ROAD = Road(1, lambda host, sent, total, source="": None, lambda text: None)


class Sender:
    """The sender: this machine, which pushes `folder` to `host`."""

    def __init__(self, folder: Path, cache: Path, host: Here) -> None:
        self.folder, self.cache, self.host = folder, cache, host

    def look(self, choice: SendChoice = NO_CHOICE) -> tuple[Outgoing, HostFolders]:
        outgoing = folder_push.outgoing_folder(FolderLook(self.folder, choice, self.cache))
        return outgoing, folder_push.look_at_folders(self.host, [outgoing.content.digest, *outgoing.older])

    def push(self, choice: SendChoice = NO_CHOICE) -> tuple[Outgoing, int]:
        """Do one complete push; return the outgoing folder and the number of bytes sent."""
        outgoing, there = self.look(choice)
        sent = folder_push.send_folder(self.host, outgoing, there, ROAD)
        outgoing.keep()
        return outgoing, sent.total()

    def on_host(self, outgoing: Outgoing) -> dict[str, object]:
        return tree(self.host.folders[outgoing.content.digest])


def tree(folder: Path) -> dict[str, object]:
    """Every path below the folder, with its content, link target or None for a folder."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder)).decode(errors="backslashreplace")
        executable = path.stat(follow_symlinks=False).st_mode & 0o111 != 0
        kind = os.readlink(path) if path.is_symlink() else None if path.is_dir() else (path.read_bytes(), executable)
        found[name] = kind
    return found


@pytest.fixture
def sender(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_memory, "_RECENT_S", -60.0)  # a test cannot wait until its files are old enough
    folder = tmp_path / "code"
    for number in range(20):
        (folder / f"data/{number % 4}").mkdir(parents=True, exist_ok=True)
        (folder / f"data/{number % 4}/{number}.bin").write_bytes(os.urandom(5000))
    (folder / "train.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("data/0")
    (folder / "empty").mkdir()
    (folder / os.fsdecode(b"odd \xff\n'\" -name")).write_text("x")
    (folder / ("n" * 200)).mkdir()
    (folder / ("n" * 200) / ("m" * 200)).write_text("long")
    (folder / "-f").write_text("no option")
    return Sender(folder, tmp_path / "cache", Here(tmp_path / "home"))


def test_without_scrypt_a_push_works_and_only_remembers_less(sender, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("[digital envelope routines] unsupported")

    monkeypatch.setattr(hashlib, "scrypt", refuse)
    outgoing, _ = sender.push()
    outgoing.save()
    assert sender.push()[1] == 0


@pytest.mark.parametrize("size", [0, 1, 8**11 - 1, 8**11])
@pytest.mark.parametrize("name", ["a", "odd \udcff\n", "n" * 94, "n" * 95, "ü" * 47, "ü" * 48])
def test_a_tar_header_equals_that_of_tarfile(name, size):
    for mode in (0o644, 0o755):
        entry = Entry(name, stat.S_IFREG, size, mode)
        made = entry.header(f"files/{name}")
        assert folder_stream._header_of(entry) == made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def test_a_host_gets_the_folder_and_the_node_verifies_that_it_is_what_was_sent(sender, tmp_path):
    outgoing, sent = sender.push()
    assert sent == sender.host.sent
    assert sender.on_host(outgoing) == tree(sender.folder)
    there = sender.host.folders[outgoing.content.digest]
    assert work.prepare(tmp_path / "run", there, outgoing.content.digest) == []
    assert tree(tmp_path / "run/work").keys() >= {"train.py", "latest", "-f"}
    assert sender.push()[1] == 0


def test_only_changes_are_sent_and_the_rest_is_taken_from_the_previous_folder(sender):
    first, _ = sender.push()
    folder = sender.folder
    (folder / "train.py").write_text("print(2)\n")
    (folder / "data/0/0.bin").unlink()
    for path in sorted((folder / "data/1").iterdir()):
        path.unlink()
    (folder / "data/1").rmdir()
    (folder / "data/1").write_text("a file now")
    (folder / "run.sh").unlink()
    (folder / "run.sh").mkdir()
    (folder / "run.sh/inside").write_text("a folder now")
    (folder / "data/3/3.bin").unlink()
    (folder / "data/3/3.bin").symlink_to("7.bin")
    (folder / "data/3/7.bin").chmod(0o755)
    (folder / "empty").rmdir()
    (folder / "-f").unlink()
    second, sent = sender.push()
    assert 0 < sent < 20_000
    assert sender.on_host(second) == tree(folder)
    assert set(sender.host.folders) == {second.content.digest}
    assert first.content.digest != second.content.digest
    assert sender.push()[1] == 0


def test_a_folder_in_use_by_a_container_is_not_changed(sender):
    first, _ = sender.push()
    before = sender.on_host(first)
    sender.host.used = {first.content.digest}
    (sender.folder / "train.py").write_text("print(2)\n")
    (sender.folder / "data/0/0.bin").write_text("other")
    second, sent = sender.push()
    assert sent < 20_000
    assert sender.on_host(second) == tree(sender.folder)
    assert sender.on_host(first) == before
    sender.host.used = set()
    (sender.folder / "train.py").write_text("print(3)\n")
    third, _ = sender.push()
    assert set(sender.host.folders) == {third.content.digest}


def test_an_interrupted_push_leaves_the_earlier_folder_and_nothing_else(sender):
    outgoing, there = sender.look()
    whole = outgoing.plan(there).stream.size
    for most in (0, 1, 700, whole // 2, whole - 1536, whole - 1025, whole - 1024 - 512):
        sender.host.most = most
        with pytest.raises(DeployError):
            sender.push()
        assert sender.host.folders == {}, most
    sender.host.most = None
    first, _ = sender.push()
    (sender.folder / "train.py").write_text("print(2)\n")
    sender.host.most = 1024
    with pytest.raises(DeployError):
        sender.push()
    assert set(sender.host.folders) == {first.content.digest}
    sender.host.most = None
    second, _ = sender.push()
    assert sender.on_host(second) == tree(sender.folder)


def test_a_folder_damaged_on_a_host_is_sent_again(sender):
    outgoing, _ = sender.push()
    there = sender.host.folders[outgoing.content.digest]
    damages = (
        lambda: (there / "train.py").write_text(""),
        lambda: (there / "data/0/0.bin").unlink(),
        lambda: (there / "more").write_text("x"),
        lambda: (there / "run.sh").chmod(0o644),
        lambda: (there / "data/0/0.bin").write_bytes(os.urandom(5000)),
        lambda: ((there / "latest").unlink(), (there / "latest").symlink_to("elsewhere")),
        lambda: os.mkfifo(there / "pipe"),
    )
    for number, damage in enumerate(damages):
        damage()
        assert sender.push()[1] > 100_000, number
        assert sender.on_host(outgoing) == tree(sender.folder), number


@pytest.mark.holds("sent-is-proved")
def test_damage_that_a_look_cannot_see_stops_the_start_of_the_node(sender, tmp_path):
    outgoing, _ = sender.push()
    path = sender.host.folders[outgoing.content.digest] / "data/0/0.bin"
    status = path.stat()
    path.write_bytes(bytes(5000))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert sender.push()[1] == 0
    with pytest.raises(work.Refused, match="differs from what was sent"):
        work.prepare(tmp_path / "run", path.parents[2], outgoing.content.digest)


def test_the_agent_is_sent_as_a_folder_that_everybody_on_the_host_may_read(sender):
    agent = folder_push.outgoing_trainer()

    def send():
        there = folder_push.look_at_folders(sender.host, [agent.content.digest])
        return folder_push.send_folder(sender.host, agent, there, ROAD).total()

    assert send() == sender.host.sent > 0
    there = sender.host.folders[agent.content.digest]
    assert {"muster/trainer/node/agent/agent.py", "muster/trainer/recipes/digits.py", "muster/__init__.py"} <= set(
        tree(there)
    )
    assert not [path for path in there.rglob("*") if "pycache" in path.name or path.suffix == ".pyc"]
    assert {path.stat().st_mode & 0o777 for path in there.rglob("*")} == {0o755, 0o644}
    assert send() == 0
    work.refuse_other(there, agent.content.digest)
    (there / "muster/trainer/more.py").write_text("")
    with pytest.raises(work.Refused, match="differs from what was sent"):
        work.refuse_other(there, agent.content.digest)
    assert send() > 0
    assert not (there / "muster/trainer/more.py").exists()


def test_an_odd_answer_of_a_host_is_an_error_of_that_host(sender):
    for answer in (
        "",
        "at relative/path",
        "at /a\x1b[0m",
        "free 1",
        "at /a\nfree x",
        f"at /a\ndata /b\nhas {'0' * 64} {'0' * 64}",
        "at /a",
        "data /a",
        "at /a\ndata b",
    ):
        sender.host.run = lambda *_, answer=answer, **__: Done(0, answer, "")
        if "has" in answer:
            assert sender.look()[1].listings == {}
        else:
            with pytest.raises(DeployError):
                sender.look()


def test_a_full_disk_is_noticed_before_anything_is_sent(sender):
    outgoing, there = sender.look()
    with pytest.raises(DeployError, match="not enough disk space"):
        folder_push.check_space([outgoing.plan(there)], HostFolders(there.at, 1 << 20, {}))


def test_a_disk_that_fills_during_the_push_ends_it_immediately_and_is_named(sender):
    tar = sender.host.home / "bin/tar"
    tar.write_text("#!/bin/sh\nwhile echo 'tar: files/a: Cannot write: No space left on device' >&2; do :; done\n")
    tar.chmod(0o755)
    with pytest.raises(DeployError, match=r"disk is full at /.*the folder needs .* there") as refused:
        sender.push()
    assert "free some space on" in refused.value.hint
    assert sender.host.folders == {}
    tar.unlink()
    sender.push()


def test_a_file_that_changes_while_it_is_sent_ends_the_push(sender):
    outgoing, there = sender.look()
    (sender.folder / "data/3/3.bin").write_bytes(os.urandom(5000))
    with pytest.raises(DeployError, match=r"3\.bin has changed while it was sent"):
        folder_push.send_folder(sender.host, outgoing, there, ROAD)
    assert sender.host.folders == {}


def test_a_changed_file_of_the_same_size_and_time_is_sent(sender):
    sender.push()
    status = (sender.folder / "train.py").stat()
    time.sleep(0.02)  # until the file system's clock has advanced
    (sender.folder / "train.py").write_text("print(3)\n")
    os.utime(sender.folder / "train.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    outgoing, sent = sender.push()
    assert sent > 0
    assert sender.on_host(outgoing) == tree(sender.folder)


def test_the_memory_is_private_and_garbage_in_it_costs_only_a_complete_push(sender):
    sender.push()
    (place,) = (sender.cache / "folders").iterdir()
    assert place.stat().st_mode & 0o077 == 0
    for text in (b"", b"\0", b"muster folder 3\0a\0b\0c", b"\xff" * 100, b"muster folder 3"):
        for path in place.iterdir():
            path.write_bytes(text)
        (sender.folder / "train.py").write_text(f"print({len(text)})\n")
        outgoing, sent = sender.push()
        assert sent > 100_000
        assert sender.on_host(outgoing) == tree(sender.folder)


def test_a_new_secret_is_searched_for_in_unchanged_files_too(sender):
    (sender.folder / "notes.txt").write_text("my word is sesame-4711-x\n")
    assert "notes.txt" in sender.on_host(sender.push()[0])
    outgoing, _ = sender.push(SendChoice(values={"TOKEN": "sesame-4711-x"}))
    assert "notes.txt" not in sender.on_host(outgoing)
    assert set(sender.host.folders) == {outgoing.content.digest}


def test_a_file_is_read_once_for_both_its_digest_and_the_credential_search(sender, monkeypatch):
    monkeypatch.setattr(left_out, "_CLEAN", {})
    monkeypatch.setattr(left_out, "DIGESTS", {})
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 64
    (sender.folder / os.fsdecode(b"key \xff\n.txt")).write_text(key)
    (sender.folder / "notes.txt").write_text("my word is sesame-4711-x\n")
    (sender.folder / "data/0/0.bin").write_bytes(os.urandom(3 << 20))
    choice = SendChoice(values={"TOKEN": "sesame-4711-x"})
    entries = {path: content.read_entry(sender.folder, path) for path in selection.select(sender.folder).paths}
    found = left_out.find(sender.folder, entries, choice)
    assert {file.path for file in found} == {os.fsdecode(b"key \xff\n.txt"), "notes.txt"}
    searched = {path: digest for (path, _), digest in left_out.DIGESTS.items()}
    files = [path for path, entry in entries.items() if entry.isreg()]
    assert searched == {path: hashlib.sha256((sender.folder / path).read_bytes()).hexdigest() for path in files}


def test_a_file_that_cannot_be_read_is_named(sender):
    entries = {path: content.read_entry(sender.folder, path) for path in ("train.py", "run.sh")}
    (sender.folder / "train.py").unlink()
    with pytest.raises(DeployError, match=r"cannot read .*train\.py"):
        left_out.find(sender.folder, entries, NO_CHOICE)
