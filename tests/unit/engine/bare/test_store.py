"""What the engine of bare hosts tells of its containers while other commands change them."""

import shutil
import time
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
    (tmp_path / "torch_2").write_text("")
    entry = next(entry for entry in processes.os.scandir(tmp_path) if entry.name == "torch_2")

    def gone(**_):
        raise FileNotFoundError

    going = SimpleNamespace(name="torch_1", is_file=lambda **_: True, stat=gone)
    unlinked = []
    with monkeypatch.context() as patched:
        patched.setattr(processes.os, "scandir", lambda _: [going, entry])
        patched.setattr(processes, "_used", set)
        patched.setattr(processes.os, "unlink", unlinked.append)
        processes._drop_segments(SimpleNamespace(folder=str(tmp_path)))
    assert unlinked == ["/dev/shm/torch_2"]
