"""Data is sent to a host completely and once, and stays there: a push of code leaves it alone."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.job.values import Data
from deploy.send.folder import folder_look, folder_memory, folder_push
from deploy.send.folder.credentials import NO_CHOICE, SendChoice
from deploy.send.folder.folder_look import FolderLook
from trainer.node.files import work

from .test_folder_push import ROAD, Here, Sender, tree

# These tests start other programs.
pytestmark = pytest.mark.long


class DataSender(Sender):
    """The sender: this machine, which pushes a folder of data to `host`."""

    digest = ""

    def look(self, choice=NO_CHOICE):
        data = Data(self.folder, "/data", self.digest)
        outgoing = folder_push.outgoing_folder(FolderLook(self.folder, choice, self.cache, data))
        return outgoing, folder_push.look_at_folders(self.host, outgoing.names)

    def on_host(self, outgoing):
        return tree(self.host.kept("data")[outgoing.content.digest])


@pytest.fixture
def sender(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_memory, "_RECENT_S", -60.0)  # a test cannot wait until its files are old enough
    folder = tmp_path / "corpus"
    for number in range(20):
        (folder / f"shards/{number % 4}").mkdir(parents=True, exist_ok=True)
        (folder / f"shards/{number % 4}/{number}.bin").write_bytes(os.urandom(50_000))
    (folder / ".gitignore").write_text("*\n")
    (folder / ".dockerignore").write_text("*\n")
    for name in (".git/config", ".env", "__pycache__/a.pyc", "runs/one/log", ".venv/x", "node_modules/y"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("kept")
    (folder / "etc").symlink_to("/etc")
    (folder / "up").symlink_to("../../..")
    (folder / "empty").mkdir()
    (folder / os.fsdecode(b"odd \xff\n'\" -name")).write_text("x")
    (folder / "-rf").write_text("no option")
    return DataSender(folder, tmp_path / "cache", Here(tmp_path / "home"))


def test_all_data_is_sent_once_whatever_ignore_rules_and_names_say(sender):
    outgoing, sent = sender.push()
    assert sender.on_host(outgoing) == tree(sender.folder)
    assert sent > 1_000_000
    assert sender.host.folders == {}, "it lies apart from the folders of code"
    work.refuse_other(sender.host.kept("data")[outgoing.content.digest], outgoing.content.digest)
    assert sender.push()[1] == 0


def test_only_changed_files_are_sent_again_even_if_most_have_changed(sender):
    first, whole = sender.push()
    for number in range(14):
        (sender.folder / f"shards/{number % 4}/{number}.bin").write_bytes(os.urandom(50_000))
    second, sent = sender.push()
    assert 14 * 50_000 < sent < 0.8 * whole
    assert sender.on_host(second) == tree(sender.folder)
    assert set(sender.host.kept("data")) == {second.content.digest}, "the content before it has gone"
    assert first.content.digest != second.content.digest


def test_data_in_use_by_a_container_is_kept_next_to_the_changed_data(sender):
    first, _ = sender.push()
    before = sender.on_host(first)
    sender.host.used = {first.content.digest}
    (sender.folder / "shards/0/0.bin").write_bytes(b"other")
    second, sent = sender.push()
    assert sent < 100_000
    assert sender.on_host(first) == before
    assert sender.on_host(second) == tree(sender.folder)


def test_a_push_of_code_and_one_of_data_leave_each_other_alone(sender, tmp_path):
    data, _ = sender.push()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)")
    code = Sender(tmp_path / "code", sender.cache, sender.host)
    code.push()
    (tmp_path / "code/train.py").write_text("print(2)")
    second, _ = code.push()
    assert set(sender.host.kept("data")) == {data.content.digest}
    assert set(sender.host.folders) == {second.content.digest}
    same = Sender(sender.folder / "shards", sender.cache, sender.host)
    assert same.push()[1] > 0


def test_a_host_remembers_when_a_run_last_used_the_data(sender):
    outgoing, _ = sender.push()
    there = sender.host.kept("data")[outgoing.content.digest]
    os.utime(there, (1000, 1000))
    sender.look()
    assert there.stat().st_mtime == 1000, "who only looks does not use it"
    sender.push()
    assert there.stat().st_mtime > time.time() - 60


def test_data_with_another_digest_than_cluster_toml_names_is_refused(sender):
    outgoing, _ = sender.look()
    sender.digest = outgoing.content.digest
    sender.push()
    (sender.folder / "shards/0/0.bin").write_bytes(b"other")
    with pytest.raises(UsageError, match=f"cluster.toml has {sender.digest}"):
        sender.push()


@pytest.mark.holds("data-whole")
@pytest.mark.parametrize("change", ["grows", "same size", "goes", "becomes a link", "becomes a pipe"])
def test_data_that_changes_while_it_is_read_is_refused_and_leaves_nothing_behind(sender, change):
    outgoing, there = sender.look()
    path = sender.folder / "shards/1/13.bin"
    if change == "grows":
        path.open("ab").write(b"x")
    elif change == "same size":
        path.write_bytes(os.urandom(50_000))
    else:
        path.unlink()
    if change == "becomes a link":
        path.symlink_to("/etc/hostname")
    elif change == "becomes a pipe":
        os.mkfifo(path)
    with pytest.raises(DeployError, match=r"13\.bin"):
        folder_push.send_folder(sender.host, outgoing, there, ROAD)
    assert sender.host.kept("data") == {}


def test_a_file_created_after_the_look_is_not_sent(sender):
    outgoing, there = sender.look()
    (sender.folder / "later").write_text("x")
    folder_push.send_folder(sender.host, outgoing, there, ROAD)
    assert "later" not in sender.on_host(outgoing)


def test_damaged_data_on_a_host_is_noticed_and_sent_again(sender):
    outgoing, whole = sender.push()
    there = sender.host.kept("data")[outgoing.content.digest]
    for damage in (
        lambda: (there / "shards/0/0.bin").write_bytes(b"x"),
        lambda: (there / "etc").unlink(),
        lambda: (there / "more").write_text("x"),
    ):
        damage()
        assert sender.push()[1] == whole
        assert sender.on_host(outgoing) == tree(sender.folder)


def test_data_with_the_file_of_a_secret_is_refused(sender):
    choice = SendChoice(sources={"TOKEN": sender.folder / "shards/0/0.bin"})
    with pytest.raises(UsageError, match="it holds the secret TOKEN"):
        sender.look(choice)


def test_files_in_the_data_that_look_like_credentials_are_named(sender):
    seen = folder_look.look_at_data(sender.folder)
    assert {".env", ".git"} <= {each.path for each in seen.credentials}
    assert {entry.path for entry in seen.entries} >= {".env", ".git/config"}


def test_a_missing_or_empty_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        folder_look.looks_at_data([Data(tmp_path / "none", "/data")], NO_CHOICE)
    (tmp_path / "empty/inner").mkdir(parents=True)
    with pytest.raises(UsageError, match="no file"):
        folder_look.look_at_data(tmp_path / "empty")


def test_a_folder_that_cannot_be_read_is_named(sender, monkeypatch):
    def scandir(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DeployError, match="Permission denied"):
        folder_look.look_at_data(sender.folder)


def test_a_dry_run_knows_how_much_would_be_sent(sender):
    outgoing, there = sender.look()
    planned = outgoing.on_host(there)
    assert planned.is_data
    assert planned.bytes == outgoing.plan(there).stream.size > 1_000_000
    assert planned.place == f"{there.data}/{outgoing.content.digest}"
    assert planned.lacking == "all 32 files of /data"
    sender.push()
    outgoing, there = sender.look()
    assert outgoing.on_host(there) == replace(planned, lacking="", bytes=0)
