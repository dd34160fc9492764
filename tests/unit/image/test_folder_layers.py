"""A large folder that changes a little is sent as its whole layer, once, and a layer with what changed."""

from __future__ import annotations

import io
import os
import tarfile
import time

import pytest

from deploy.image import folder_layers
from deploy.image.credentials import NO_CHOICE, Choice


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that counts as large; its files are not from just now."""
    monkeypatch.setattr(folder_layers, "LARGE", 1000)
    monkeypatch.setattr(folder_layers, "_RECENT_S", -60.0)  # a test cannot wait until its files are old
    home = tmp_path / "code"
    for number in range(20):
        (home / f"data/{number % 4}").mkdir(parents=True, exist_ok=True)
        (home / f"data/{number % 4}/{number}.bin").write_bytes(os.urandom(500))
    (home / "train.py").write_text("print(1)\n")
    return home


def pack(folder, cache, **more):
    return folder_layers.pack(folder, False, more.pop("choice", NO_CHOICE), cache / "layers", **more)


def files_of(layer):
    with tarfile.open(fileobj=io.BytesIO(b"".join(layer.content.read()))) as tar:
        return {entry.name.removeprefix("workspace/"): entry for entry in tar}


def seen_by_a_container(first, second):
    """What layers show together, by the rules of overlays: files of `first`, less what `second` hides or replaces."""
    shown = {name: entry for name, entry in files_of(first).items() if not entry.isdir()}
    for name, entry in files_of(second).items():
        place, _, last = name.rpartition("/")
        hidden = f"{place}/{last.removeprefix('.wh.')}".lstrip("/") if last.startswith(".wh.") else name
        if last.startswith(".wh.") or not entry.isdir():
            shown = {path: old for path, old in shown.items() if path != hidden and not path.startswith(f"{hidden}/")}
        if not entry.isdir() and not last.startswith(".wh."):
            shown[name] = entry
    return set(shown)


def test_one_changed_file_is_all_that_goes_over_the_layer_that_the_hosts_have(folder, tmp_path):
    first = pack(folder, tmp_path)
    assert first.below is None
    again = pack(folder, tmp_path)
    assert (again.top, again.digests) == (None, first.digests)
    (folder / "train.py").write_text("print(2)\n")
    second = pack(folder, tmp_path)
    assert second.below.digest == first.top.digest
    assert {name for name, entry in files_of(second.top).items() if not entry.isdir()} == {"train.py"}
    assert pack(folder, tmp_path, whole=True).below is None


def test_what_is_removed_added_renamed_or_changes_its_kind_is_what_a_container_sees(folder, tmp_path):
    first = pack(folder, tmp_path)
    (folder / "data/0/0.bin").unlink()
    for path in (folder / "data/1").iterdir():
        path.unlink()
    (folder / "data/1").rmdir()
    for path in (folder / "data/2").iterdir():
        path.unlink()
    (folder / "data/2").rmdir()
    (folder / "data/2").write_text("a file now")
    (folder / "train.py").rename(folder / "main.py")
    (folder / "new/deep").mkdir(parents=True)
    (folder / "new/deep/x").write_text("")
    (folder / "empty").mkdir()
    (folder / "data/3/3.bin").unlink()
    (folder / "data/3/3.bin").symlink_to("7.bin")
    (folder / "data/3/7.bin").chmod(0o755)
    second = pack(folder, tmp_path)
    now = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    assert seen_by_a_container(first.top, second.top) == now
    entries = files_of(second.top)
    assert entries["data/3/7.bin"].mode == 0o755
    assert entries["data"].mode == entries["data/3"].mode == 0o777  # as in the layer below
    assert "empty" in entries


def test_a_touched_file_and_one_of_the_same_size_and_time_are_sent(folder, tmp_path):
    pack(folder, tmp_path)
    status = (folder / "train.py").stat()
    time.sleep(0.02)  # the clock of the file system ticks
    (folder / "train.py").write_text("print(3)\n")
    os.utime(folder / "train.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "train.py" in files_of(pack(folder, tmp_path).top)


def test_when_much_has_changed_or_the_folder_is_small_it_is_one_layer(folder, tmp_path, monkeypatch):
    pack(folder, tmp_path)
    for path in folder.glob("data/*/*.bin"):
        path.write_bytes(os.urandom(500))
    assert pack(folder, tmp_path).below is None
    monkeypatch.setattr(folder_layers, "LARGE", 1 << 20)
    (folder / "train.py").write_text("print(2)\n")
    assert pack(folder, tmp_path).below is None


def test_what_is_remembered_is_only_for_its_owner_and_rubbish_in_it_costs_a_whole_push(folder, tmp_path):
    pack(folder, tmp_path)
    (memory,) = (tmp_path / "folders").iterdir()
    assert memory.parent.stat().st_mode & 0o077 == 0
    for text in ("", "{", "[]", '{"format": 1}', '{"format": 1, "layer": 3, "size": "x", "files": []}', "\0"):
        memory.write_text(text)
        (folder / "train.py").write_text(f"print({len(text)})\n")
        assert pack(folder, tmp_path).below is None


def test_a_secret_that_is_new_is_searched_for_in_files_that_have_not_changed(folder, tmp_path):
    (folder / "notes.txt").write_text("my word is sesame-4711-x\n")
    pack(folder, tmp_path)
    second = pack(folder, tmp_path, choice=Choice(values={"TOKEN": "sesame-4711-x"}))
    assert second.below is None
    assert "notes.txt" not in files_of(second.top)


def test_what_a_rule_now_keeps_here_is_in_no_layer_below_either(folder, tmp_path):
    pack(folder, tmp_path)
    (folder / ".gitignore").write_text("train.py\n")
    second = pack(folder, tmp_path)
    assert second.below is None
    assert "train.py" not in files_of(second.top)
