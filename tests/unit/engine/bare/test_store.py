"""What the engine of bare hosts tells of its containers while other commands change them."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from deploy.engine.bare import processes, store


def test_a_container_that_is_removed_during_a_look_is_still_listed(tmp_path):
    config = {"Name": "a", "Image": "i", "ImageId": "i", "Created": store.now(), "Labels": {}, "Mounts": []}
    store.write(str(tmp_path / "config.json"), {**config, "Devices": []})
    container = store.Container(str(tmp_path))
    shutil.rmtree(tmp_path)
    row = container.row()
    assert (row["Names"], row["State"], row["Status"]) == (["a"], "created", "Created (0)")
    assert abs(row["Created"] - time.time()) < 60


def test_shared_memory_that_goes_during_a_look_does_not_keep_the_rest(tmp_path, monkeypatch):
    """A process of another container may remove its own at any time."""
    (tmp_path / "config.json").write_text("{}")
    here, lists = Path(tempfile.mkstemp(dir="/dev/shm", prefix="torch_test")[1]), os.listdir
    with monkeypatch.context() as patched:
        patched.setattr(processes.os, "listdir", lambda at: ["torch_gone", here.name] if "shm" in at else lists(at))
        patched.setattr(processes, "_used", set)
        processes._drop_segments(SimpleNamespace(folder=str(tmp_path)))
    left = here.exists()
    here.unlink(missing_ok=True)
    assert not left
