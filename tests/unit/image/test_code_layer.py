"""The user's folder as a layer: the same folder is the same bytes, and only what was meant is inside."""

from __future__ import annotations

import io
import os
import socket
import tarfile

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.image import code_layer
from deploy.image.credentials import NO_CHOICE, Choice
from deploy.image.model import digest


def pack(folder, with_trainer=False, choice=NO_CHOICE):
    layer = io.BytesIO()
    code_layer.write(folder, with_trainer, choice, layer)
    return layer.getvalue()


def entries(layer):
    """The layer's entries by path below /workspace."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return {entry.name.removeprefix("workspace").removeprefix("/"): entry for entry in tar}


def content(layer, path):
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return tar.extractfile(f"workspace/{path}").read()


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


def test_the_same_folder_is_the_same_bytes_whenever_and_however_it_was_made(folder, tmp_path):
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


def test_any_change_of_content_name_or_executable_bit_is_another_layer(folder):
    layers = {pack(folder)}
    (folder / "train.py").write_text("import Package\n")
    layers.add(pack(folder))
    (folder / "train.py").chmod(0o755)
    layers.add(pack(folder))
    (folder / "train.py").rename(folder / "main.py")
    layers.add(pack(folder))
    assert len(layers) == 4


def test_the_trainer_goes_along_where_an_image_lacks_it_readable_by_all_and_without_caches(folder):
    alone, both = entries(pack(None, True)), entries(pack(folder, True))
    trainer = {name: entry for name, entry in both.items() if name.startswith("muster")}
    assert set(alone) == {"", *trainer}
    assert set(both) == {*entries(pack(folder)), *trainer}
    assert {"muster", "muster/trainer", "muster/trainer/node/agent.py", "muster/trainer/recipes/digits.py"} <= set(
        trainer
    )
    assert not [name for name in trainer if "pycache" in name or name.endswith(".pyc")]
    assert {entry.mode for entry in trainer.values()} == {0o755, 0o644}
    assert {(entry.uid, entry.gid, entry.mtime) for entry in trainer.values()} == {(0, 0, 315532800)}


def test_kinds_of_files_survive_and_whoever_runs_may_write_beside_the_code(folder):
    members = entries(pack(folder))
    assert set(members) == {"", "train.py", "package", "package/__init__.py", "start.sh", "latest"}
    assert members["start.sh"].mode == 0o755
    assert members["train.py"].mode == 0o644
    assert members["latest"].issym()
    assert members["latest"].linkname == "package"
    assert members[""].mode == members["package"].mode == 0o777
    assert {(entry.uid, entry.gid, entry.mtime) for entry in members.values()} == {(1000, 1000, 315532800)}


def test_a_link_out_of_the_folder_or_to_nowhere_is_kept_as_it_is_and_not_followed(folder):
    (folder / "outside").symlink_to("/etc/passwd")
    (folder / "nowhere").symlink_to("gone")
    members = entries(pack(folder))
    assert members["outside"].linkname == "/etc/passwd"
    assert members["nowhere"].linkname == "gone"


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


def test_without_dockerignore_what_nobody_wants_stays_here(folder):
    for path in (".git", ".venv", "package/__pycache__", "runs"):
        (folder / path).mkdir()
        (folder / path / "file").write_text("")
    assert not {name for name in entries(pack(folder)) if name.endswith("file")}


def test_names_of_any_length_and_alphabet_arrive(folder):
    name = "größe-" + "x" * 200 + ".py"
    (folder / name).write_text("1")
    assert content(pack(folder), name) == b"1"


def test_too_much_is_refused_naming_the_largest_and_what_to_do(folder):
    (folder / "weights.pt").write_bytes(bytes(6_000_000))
    with pytest.raises(DeployError, match=r"holds 6.0 MB.*at most 5.0 MB.*weights.pt \(6.0 MB\)") as refused:
        pack(folder, choice=Choice(most=5_000_000))
    assert "--mount" in refused.value.hint
    assert "--folder-limit" in refused.value.hint
    assert "weights.pt" in entries(pack(folder, choice=Choice(most=7_000_000)))


def test_a_large_file_is_named_with_its_size_and_a_hint_to_mount_it(folder, monkeypatch):
    monkeypatch.setattr(code_layer, "_LARGE", 1 << 20)
    with (folder / "weights.pt").open("wb") as file:
        file.truncate(2 << 20)
    (note,) = code_layer.look(folder).notes
    assert "weights.pt (2.1 MB)" in note
    assert "--mount" in note


def test_a_layer_lies_on_the_disk_and_is_what_its_digest_says(folder, tmp_path):
    layer = code_layer.pack(folder, False, NO_CHOICE, tmp_path / "aside")
    assert b"".join(layer.content.read()) == pack(folder)
    assert layer.digest == digest(pack(folder))
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_copy_of_the_folder_is_what_a_layer_of_it_holds(folder, tmp_path):
    code_layer.copy(folder, tmp_path / "copy")
    assert pack(tmp_path / "copy") == pack(folder)


def test_no_folder_a_file_or_nothing_in_it_is_wrong_usage(folder, tmp_path):
    for path in (tmp_path / "absent", folder / "train.py"):
        with pytest.raises(UsageError, match="no such folder"):
            pack(path)
    (folder / ".dockerignore").write_text("*\n.dockerignore\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="nothing to send"):
        pack(tmp_path / "empty")
