"""Files that a script wrote where a run keeps nothing are named; temporary files and downloads are not."""

import hashlib
import time

import pytest

from trainer.node.ending import outside_files


@pytest.fixture
def written(tmp_path):
    """Return a function that writes these files to a disk and returns the first place found on it, or None."""
    (tmp_path / "run").mkdir()

    def look(*paths, content=b"weights"):
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return next(outside_files.find(time.time() - 3600, tmp_path / "run", tmp_path, tmp_path / "none"), None)

    return look


def test_the_largest_files_are_named_and_all_are_counted(written, tmp_path):
    for number in range(5):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{number}.pt").write_bytes(b"x" * (10 + number))
    found = written()
    assert (found.files, found.bytes) == (5, 60)
    assert found.paths == [f"{tmp_path}/data/{number}.pt" for number in (4, 3, 2)]


def test_files_from_before_the_start_are_not_the_scripts(tmp_path):
    (tmp_path / "of_the_image.pt").write_text("x")
    assert not list(outside_files.find(time.time() + 60, tmp_path, tmp_path, tmp_path / "none"))


def test_files_next_to_the_scripts_folder_are_named_and_musters_own_are_not(tmp_path):
    run, root = tmp_path / "run", tmp_path / "root"
    root.mkdir()
    for path in ("work/a", "home/a", "logs/rank-0.log", "sent.json", "metrics-b.jsonl", ".sent.lock", "out/best.pt"):
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_text("x")
    assert [place.paths for place in outside_files.find(0, run, root, tmp_path / "none")] == [[f"{run}/out/best.pt"]]


def test_temporary_files_and_a_hubs_downloads_are_no_results(written):
    digest = hashlib.sha256(b"weights").hexdigest()
    assert not written(
        "tmp/tmpab12cd3_/part.bin",
        "tmp/torchelastic_x/log",
        f"hub/checkpoints/resnet18-{digest[:8]}.pth",
        "hub/org_repo_main/hubconf.py",
        "hub/org_repo_main/models/vit.py",
        f"huggingface/hub/models--a--b/blobs/{'0f' * 32}",
    )


def test_a_checkpoint_whose_name_only_looks_like_a_download_is_named(written):
    assert written("hub/checkpoints/model-00010000.pt", "hub/checkpoints/model-1a2b3c4d.pt").files == 2
