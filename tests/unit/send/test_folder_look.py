"""What is sent of a user's folder: the same folder gives the same bytes, with only the intended files."""

from __future__ import annotations

import io
import os
import shutil
import socket
import tarfile

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.send.folder import folder_look
from deploy.send.folder.credentials import NO_CHOICE, SendChoice
from deploy.send.folder.folder_stream import FolderStream


def pack(folder, choice=NO_CHOICE):
    """Everything that a host gets of the folder, as bytes."""
    return b"".join(FolderStream(folder, folder_look.look_at(folder, choice).entries).read(lambda sent: None))


def entries(sent):
    """The sent entries, by path."""
    with tarfile.open(fileobj=io.BytesIO(sent)) as tar:
        return {entry.name.removeprefix("files/"): entry for entry in tar if entry.name.startswith("files/")}


def content(sent, path):
    with tarfile.open(fileobj=io.BytesIO(sent)) as tar:
        return tar.extractfile(f"files/{path}").read()


@pytest.fixture
def folder(tmp_path):
    """A script, a package, an executable and a link."""
    home = tmp_path / "code"
    (home / "package").mkdir(parents=True)
    (home / "train.py").write_text("import package\n")
    (home / "package/__init__.py").write_text("")
    (home / "start.sh").write_text("#!/bin/sh\n")
    (home / "start.sh").chmod(0o750)
    (home / "latest").symlink_to("package")
    return home


def test_a_checkpoint_that_a_run_removes_meanwhile_does_not_stop_a_push(folder, monkeypatch):
    (folder / ".gitignore").write_text("runs\n")
    for name in ("old", "new"):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "a.pt").write_text("1")
    real = os.scandir

    def rotating(path="."):
        if str(path).endswith("runs/old"):
            shutil.rmtree(path, ignore_errors=True)
        return real(path)

    monkeypatch.setattr(os, "scandir", rotating)
    sent = {entry.path for entry in folder_look.look_at(folder, SendChoice(frozenset({"runs"}))).entries}
    assert "runs/new/a.pt" in sent
    assert not [path for path in sent if path.startswith("runs/old")]


@pytest.mark.parametrize("name", ["scandir", "lstat"])
def test_an_unreadable_folder_or_file_is_named_and_not_silently_left_out(folder, monkeypatch, name):
    """A folder without r cannot be listed, and one without x hides its files' status; root may do both."""
    (folder / ".gitignore").write_text("data\n")
    (folder / "data/closed").mkdir(parents=True)
    (folder / "data/closed/a.bin").write_text("1")
    real = getattr(os, name)

    def closed(path=".", **more):
        if "data/closed" in str(path) and (name == "scandir" or str(path).endswith("a.bin")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **more)

    monkeypatch.setattr(os, name, closed)
    for look in (
        lambda: folder_look.look_at(folder, SendChoice(include=frozenset({"data"}))),
        lambda: folder_look.look_at_data(folder / "data"),
    ):
        with pytest.raises(DeployError, match=r"cannot read .*data/closed.*: Permission denied"):
            look()


def test_a_folder_with_the_same_content_gives_the_same_bytes(folder, tmp_path):
    first = pack(folder)
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    (copy / "latest").symlink_to("package")
    for path in ("start.sh", "train.py"):
        (copy / path).write_bytes((folder / path).read_bytes())
    (copy / "start.sh").chmod(0o777)
    (copy / "train.py").chmod(0o600)
    (copy / "package").mkdir()
    (copy / "package/__init__.py").touch()
    os.utime(copy / "train.py", (1e9, 1e9))
    assert pack(copy) == first


def test_any_change_of_content_name_or_executable_bit_gives_other_bytes(folder):
    sent = {pack(folder)}
    (folder / "train.py").write_text("import Package\n")
    sent.add(pack(folder))
    (folder / "train.py").chmod(0o755)
    sent.add(pack(folder))
    (folder / "train.py").rename(folder / "main.py")
    sent.add(pack(folder))
    assert len(sent) == 4


def test_file_types_are_kept_and_everybody_on_the_host_may_read_them(folder):
    members = entries(pack(folder))
    assert set(members) == {"train.py", "package", "package/__init__.py", "start.sh", "latest"}
    assert members["start.sh"].mode == members["package"].mode == 0o755
    assert members["train.py"].mode == 0o644
    assert members["latest"].issym()
    assert members["latest"].linkname == "package"
    assert {entry.mtime for entry in members.values()} == {315532800}


def test_a_link_out_of_the_folder_or_to_nowhere_is_kept_and_not_followed(folder):
    (folder / "outside").symlink_to("/etc/passwd")
    (folder / "nowhere").symlink_to("gone")
    members = entries(pack(folder))
    assert members["outside"].linkname == "/etc/passwd"
    assert members["nowhere"].linkname == "gone"


@pytest.mark.parametrize(
    ("rule", "content", "lacks"),
    [
        ("*.bin filter=lfs diff=lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", True),
        ("*.bin filter=lfs diff=lfs", "what git-lfs brought", False),
        ("*.bin -text", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", False),
    ],
    ids=["a pointer", "the file", "a text"],
)
def test_missing_git_lfs_files_are_named_before_a_script_reads_their_pointers(folder, rule, content, lacks):
    (folder / ".gitattributes").write_text(f"{rule}\n")
    (folder / "package/a.bin").write_text(content)
    notes = folder_look.look_at(folder).notes
    assert ("only the Git LFS pointers of these files are here: package/a.bin: git lfs pull" in notes) == lacks


def test_sockets_and_pipes_are_left_out(folder):
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        assert not {"pipe", "door"} & set(entries(pack(folder)))


def test_dockerignore_is_read_by_dockers_rules(folder):
    (folder / "data/raw").mkdir(parents=True)
    (folder / "data/raw/big.bin").write_bytes(b"x")
    (folder / "data/keep.txt").write_text("keep")
    (folder / "notes.md").write_text("")
    (folder / ".dockerignore").write_text("# data is mounted\ndata\n!data/keep.txt\n\n*.md\n")
    members = set(entries(pack(folder)))
    assert "data/keep.txt" in members
    assert not {"data/raw", "data/raw/big.bin", "notes.md"} & members


def test_without_dockerignore_git_venv_caches_and_runs_are_not_sent(folder):
    for path in (".git", ".venv", "package/__pycache__", "runs"):
        (folder / path).mkdir()
        (folder / path / "file").write_text("")
    assert not {name for name in entries(pack(folder)) if name.endswith("file")}


def test_an_environment_stays_here_whatever_its_name(folder):
    for path in ("env", "package/mine"):
        (folder / path / "lib").mkdir(parents=True)
        (folder / path / "lib/file").write_text("")
        (folder / path / "pyvenv.cfg").write_text("")
    assert not [name for name in entries(pack(folder)) if "env" in name or "mine" in name]


def test_names_of_any_length_and_alphabet_are_sent(folder):
    name = "größe-" + "x" * 200 + ".py"
    (folder / name).write_text("1")
    assert content(pack(folder), name) == b"1"


def test_a_folder_over_the_limit_is_refused_with_its_largest_file_and_what_to_do(folder):
    (folder / "weights.pt").write_bytes(bytes(6_000_000))
    with pytest.raises(DeployError, match=r"holds 6.0 MB.*at most 5.0 MB.*weights.pt \(6.0 MB\)") as refused:
        pack(folder, SendChoice(most=5_000_000))
    assert "--data" in refused.value.hint
    assert "--folder-limit" in refused.value.hint
    assert "weights.pt" in entries(pack(folder, SendChoice(most=7_000_000)))


def test_a_large_file_is_named_with_its_size_and_a_hint_to_mount_it(folder, monkeypatch):
    monkeypatch.setattr(folder_look, "_LARGE", 1 << 20)
    with (folder / "weights.pt").open("wb") as file:
        file.truncate(2 << 20)
    (note,) = folder_look.look_at(folder).notes
    assert "weights.pt (2.1 MB)" in note
    assert "--mount" in note


def test_a_local_copy_of_the_folder_equals_what_a_host_gets(folder, tmp_path):
    folder_look.copy_folder(folder, tmp_path / "copy", folder_look.look_at(folder).entries)
    assert pack(tmp_path / "copy") == pack(folder)


def test_a_missing_folder_a_file_or_an_empty_folder_is_wrong_usage(folder, tmp_path):
    for path in (tmp_path / "absent", folder / "train.py"):
        with pytest.raises(UsageError, match="no such folder"):
            pack(path)
    (folder / ".dockerignore").write_text("*\n.dockerignore\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="nothing to send"):
        pack(tmp_path / "empty")


def test_a_link_out_of_the_folder_has_the_same_target_in_a_local_copy(folder, tmp_path):
    """So a script finds the rest of its repository, as when it is started without Muster."""
    (tmp_path / "shared.py").write_text("x = 1\n")
    (folder / "package/shared.py").symlink_to("../../shared.py")
    copy = tmp_path / "run/sent/workspace"
    folder_look.copy_folder(folder, copy, folder_look.look_at(folder).entries)
    assert (copy / "package/shared.py").read_text() == "x = 1\n"
    assert os.readlink(copy / "latest") == "package"
