"""What a script wrote where a run keeps nothing is named, and what its programs throw away or download is not."""

import hashlib
import time

import pytest

from trainer.node import outside


@pytest.fixture
def written(tmp_path):
    """Look at a disk with these files, a path each; `old` ones were there before the script."""

    def look(*paths, content=b"weights"):
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return outside.look(time.time() - 3600, tmp_path, tmp_path / "none")

    return look


def test_the_largest_files_are_named_and_all_are_counted(written, tmp_path):
    for number in range(5):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{number}.pt").write_bytes(b"x" * (10 + number))
    found = written()
    assert (found.count, found.bytes) == (5, 60)
    assert found.paths == [f"{tmp_path}/data/{number}.pt" for number in (4, 3, 2)]


def test_what_was_there_before_is_not_the_scripts(tmp_path):
    (tmp_path / "of_the_image.pt").write_text("x")
    assert not outside.look(time.time() + 60, tmp_path, tmp_path / "none").count


def test_temporary_files_and_a_hubs_downloads_are_no_results(written):
    digest = hashlib.sha256(b"weights").hexdigest()
    assert not written(
        "tmp/tmpab12cd3_/part.bin",
        "tmp/torchelastic_x/log",
        f"hub/checkpoints/resnet18-{digest[:8]}.pth",
        "hub/org_repo_main/hubconf.py",
        "hub/org_repo_main/models/vit.py",
        f"huggingface/hub/models--a--b/blobs/{'0f' * 32}",
    ).count


def test_a_checkpoint_whose_name_only_looks_like_a_download_is_named(written):
    assert written("hub/checkpoints/model-00010000.pt", "hub/checkpoints/model-1a2b3c4d.pt").count == 2
