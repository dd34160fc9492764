"""Files that a script wrote in earlier starts are kept when a later start begins anew."""

import os
import shutil
import threading
import time
from collections import namedtuple

import pytest

from muster.reserve import note
from trainer.node.ending.rank_lives import Life
from trainer.node.files import earlier


@pytest.fixture
def run(tmp_path):
    (tmp_path / "work/ckpt").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    for path, words in (("work/ckpt/last.pt", "step 900"), ("home/best.pt", "best"), ("work/new.txt", "new")):
        (tmp_path / path).write_text(words)
    began = time.time() - 100
    for path in ("work/ckpt/last.pt", "home/best.pt"):
        os.utime(tmp_path / path, (began - 60, began - 60))
    return tmp_path, began


def kept(folder):
    home = folder / "earlier"
    return {f"{path.relative_to(home)}": path.read_text() for path in home.rglob("*") if path.is_file()}


def test_files_from_before_this_start_are_copied_and_new_ones_are_not(run):
    folder, began = run
    assert earlier.keep_earlier_files(folder, began) == {"files": 2, "bytes": 12, "place": "earlier/1"}
    assert kept(folder) == {"1/work/ckpt/last.pt": "step 900", "1/home/best.pt": "best"}
    assert (folder / "work/ckpt/last.pt").read_text() == "step 900"


def test_nodes_that_share_the_folder_copy_it_once_and_each_later_start_has_a_number(run):
    folder, began = run
    earlier.keep_earlier_files(folder, began)
    assert earlier.keep_earlier_files(folder, began) == {}
    assert earlier.keep_earlier_files(folder, time.time() + 60)["place"] == "earlier/2"


def test_a_copy_that_the_user_has_removed_prevents_no_later_copy(run):
    folder, began = run
    for wait in (0, 60):
        earlier.keep_earlier_files(folder, began + 2 * wait)
    shutil.rmtree(folder / "earlier/1")
    assert earlier.keep_earlier_files(folder, time.time() + 60)["place"] == "earlier/3"
    assert kept(folder)["3/work/ckpt/last.pt"] == "step 900"


def test_a_disk_with_too_little_space_is_left_to_the_script_and_this_is_reported(run, monkeypatch):
    folder, began = run
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(20))
    about = earlier.keep_earlier_files(folder, began)
    assert (about["files"], about["place"], about["message"]) == (2, "", "the disk has too little space")
    assert kept(folder) == {}


def test_a_file_that_is_overwritten_during_the_copy_is_not_kept(run, monkeypatch):
    folder, began = run
    copy = shutil.copy2

    def late(source, goal, **more):
        copy(source, goal, **more)
        if source.name == "last.pt":
            source.write_text("step 1")

    monkeypatch.setattr(shutil, "copy2", late)
    about = earlier.keep_earlier_files(folder, began)
    assert (about["files"], about["message"]) == (1, "1 of them were overwritten in the meantime")
    assert kept(folder) == {"1/home/best.pt": "best"}


def test_a_folder_without_files_of_the_script_has_nothing_to_keep(tmp_path):
    (tmp_path / "work").mkdir()
    assert earlier.keep_earlier_files(tmp_path, time.time()) == {}
    assert not (tmp_path / "earlier").exists()


def test_a_link_is_kept_as_a_link_and_leads_nowhere(run):
    folder, began = run
    os.symlink("/etc/passwd", folder / "work/link")
    os.utime(folder / "work/link", (began - 9, began - 9), follow_symlinks=False)
    earlier.keep_earlier_files(folder, began)
    assert os.readlink(folder / "earlier/1/work/link") == "/etc/passwd"


def test_a_disk_that_fills_during_the_copy_gets_its_space_back(run, monkeypatch):
    folder, began = run
    copy = shutil.copy2

    def full(source, goal, **more):
        if source.name == "best.pt":
            raise OSError(28, "No space left on device")
        copy(source, goal, **more)

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError, match="No space left"):
        earlier.keep_earlier_files(folder, began)
    assert kept(folder) == {}


def test_a_hanging_disk_does_not_delay_the_end_of_a_node(run, monkeypatch):
    folder, _ = run
    hangs, over = threading.Event(), threading.Event()
    monkeypatch.setattr(earlier, "keep_earlier_files", lambda *where: (hangs.set(), over.wait(), {})[-1])
    monkeypatch.setattr(earlier, "_FINISH_SECONDS", 0.1)
    note(folder, anew=True)
    looks = earlier.Earlier(folder, folder, lambda about: None)
    looks.look([Life(0, 0, 1, 1, 7, time.time())])
    assert hangs.wait(30)
    looks.finish()
    over.set()
