"""A script's work folder gets the sent files and keeps those that the script wrote; nothing is lost silently."""

import io
import json
import os
import shutil
import tarfile
from contextlib import suppress

import pytest

from trainer.node.files import work


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def sent(tmp_path):
    folder = tmp_path / "sent"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("version 1")
    (folder / "pkg/model.py").write_text("model 1")
    return folder


def test_sent_files_are_in_the_work_folder(run, sent):
    (sent / "latest").symlink_to("train.py")
    assert work.prepare(run, sent) == []
    assert (run / "work/pkg/model.py").read_text() == "model 1"
    assert (run / "work/latest").readlink().name == "train.py"
    assert work.count_written(run) == work.FileTotals(0, 0)


def test_long_names_arrive_whole_whatever_their_beginning_and_letters(run, sent):
    contents = {f"{'x' * 210}-{number}": bytes([number]) * (2 << 20) for number in range(8)} | {"я" * 127: b"1"}
    for name, content in contents.items():
        (sent / name).write_bytes(content)
    assert work.prepare(run, sent) == []
    assert all((run / "work" / name).read_bytes() == content for name, content in contents.items())
    brought(run, file("home/" + "я" * 127))
    assert (run / "home" / ("я" * 127)).exists()


def test_a_later_start_replaces_what_was_sent_and_keeps_what_the_script_wrote(run, sent):
    work.prepare(run, sent)
    (run / "work/outputs").mkdir()
    (run / "work/outputs/ckpt.pt").write_text("weights")
    (sent / "train.py").write_text("version 2")
    assert work.prepare(run, sent) == []
    assert (run / "work/train.py").read_text() == "version 2"
    assert (run / "work/outputs/ckpt.pt").read_text() == "weights"
    assert work.count_written(run) == work.FileTotals(1, 7, "work")


def test_a_file_that_was_sent_and_changed_by_the_script_stays_and_is_named(run, sent):
    work.prepare(run, sent)
    (run / "work/train.py").write_text("changed by the script")
    assert work.prepare(run, sent) == ["train.py"]
    (sent / "train.py").write_text("version 2")
    assert work.prepare(run, sent) == ["train.py"]
    assert (run / "work/train.py").read_text() == "changed by the script"


def test_a_file_that_the_script_wrote_is_not_overwritten_by_a_sent_one_of_its_name(run, sent):
    work.prepare(run, sent)
    (run / "work/results.csv").write_text("mine")
    (sent / "results.csv").write_text("yours")
    assert work.prepare(run, sent) == ["results.csv"]
    assert (run / "work/results.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("wrote", "comes"), [("data/out.pt", "data"), ("data", "data/a.csv"), ("data", "data/a/b.csv")]
)
def test_a_scripts_folder_stays_if_a_file_is_sent_there_and_its_file_if_a_folder_is(run, sent, wrote, comes):
    work.prepare(run, sent)
    for path, text in ((run / "work" / wrote, "mine"), (sent / comes, "yours"), (sent / "train.py", "version 2")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert work.prepare(run, sent) == [comes]
    assert (run / "work" / wrote).read_text() == "mine"
    assert (run / "work/train.py").read_text() == "version 2", "the rest comes"
    assert not list((run / "work").glob(".*"))


def test_a_sent_folder_may_later_be_sent_as_a_file_and_the_other_way_around(run, sent):
    work.prepare(run, sent)
    (sent / "pkg/model.py").unlink()
    (sent / "pkg").rmdir()
    (sent / "pkg").write_text("a file")
    assert work.prepare(run, sent) == []
    assert (run / "work/pkg").read_text() == "a file"
    (sent / "pkg").unlink()
    (sent / "pkg").mkdir()
    (sent / "pkg/model.py").write_text("model 2")
    (sent / "latest").symlink_to("pkg")
    assert work.prepare(run, sent) == []
    assert (run / "work/pkg/model.py").read_text() == "model 2"
    (sent / "latest").unlink()
    (sent / "latest").symlink_to("train.py")
    before = (run / "work/train.py").stat().st_ino
    assert work.prepare(run, sent) == []
    assert (run / "work/latest").readlink().name == "train.py"
    assert (run / "work/train.py").stat().st_ino == before, "what is there already is not copied again"
    shutil.rmtree(sent)
    sent.mkdir()
    assert work.prepare(run, sent) == []
    assert list((run / "work").iterdir()) == []


def test_nothing_behind_a_link_that_replaced_a_sent_folder_is_touched(run, sent, tmp_path):
    (sent / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        (sent / "data" / name).write_text(name)
    work.prepare(run, sent)
    (run / "work/data").rename(tmp_path / "mounted")
    (run / "work/data").symlink_to(tmp_path / "mounted")
    (tmp_path / "mounted/b.csv").unlink()
    assert {"data/a.csv", "data/b.csv"} <= {*work.prepare(run, sent)}
    assert [path.name for path in (tmp_path / "mounted").iterdir()] == ["a.csv"]
    (sent / "data/a.csv").unlink()
    work.prepare(run, sent)
    assert [path.name for path in (tmp_path / "mounted").iterdir()] == ["a.csv"]


def test_a_file_that_is_no_longer_sent_is_removed_unless_the_script_changed_it(run, sent):
    work.prepare(run, sent)
    (sent / "pkg/model.py").unlink()
    assert work.prepare(run, sent) == []
    assert not (run / "work/pkg/model.py").exists()
    work.prepare(run, sent)
    (run / "work/train.py").write_text("changed")
    (sent / "train.py").unlink()
    work.prepare(run, sent)
    assert (run / "work/train.py").read_text() == "changed"


def test_a_torn_manifest_loses_no_change_of_the_script(run, sent):
    work.prepare(run, sent)
    (run / "work/train.py").write_text("changed")
    (run / "sent.json").write_text('{"train.py": ')
    assert work.prepare(run, sent) == ["train.py"]
    assert (run / "work/train.py").read_text() == "changed"


def test_new_code_arrives_however_many_files_an_earlier_start_brought(run, sent):
    for number in range(430):  # the reader of the list counts these as 100,000 files
        (sent / f"{'[' * 240}{number}").touch()
    work.prepare(run, sent)
    assert work.count_written(run) == work.FileTotals(0, 0)
    (sent / "train.py").write_text("version 2")
    assert work.prepare(run, sent) == []
    assert (run / "work/train.py").read_text() == "version 2"


def download(run, size=100):
    """Write what huggingface_hub leaves for a model, and Python for a module; return the hub's folder."""
    hub = run / "home/.cache/huggingface/hub/models--a--b"
    for path, content in {
        hub / "blobs" / ("0f" * 32): "x" * size,
        hub / "refs/main": "a" * 40,
        run / "work/__pycache__/model.cpython-311.pyc": "y",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    link = hub / "snapshots" / ("a" * 40) / "model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../blobs/" + "0f" * 32)
    return hub


def test_the_total_counts_the_home_and_leaves_out_replaceable_files(run, sent):
    work.prepare(run, sent)
    download(run)
    (run / "home/results.txt").write_text("123")
    place = "home/.cache/huggingface/hub/models--a--b"
    assert work.count_written(run) == work.FileTotals(1, 3, "home", 140, place)
    (run / "keep/data/out").mkdir(parents=True)
    (run / "keep/data/out/train.py").write_text("12")
    assert work.count_written(run) == work.FileTotals(2, 5, "", 140, place)


def test_downloads_after_a_stop_do_not_count_as_saved_by_the_script(run, sent):
    download(run)
    assert work.written_since(run, 0.0) == []
    (run / "home/results.txt").write_text("123")
    assert work.written_since(run, 0.0) == ["home/results.txt"]


@pytest.mark.parametrize(
    "place", ["home/.cache/mychat", "home/.config/mychat", "home/.nv", "work/__pycache__", "work/.git"]
)
def test_a_result_counts_and_goes_to_the_other_hosts_wherever_it_is(run, sent, place):
    work.prepare(run, sent)
    download(run)
    (run / place).mkdir(parents=True, exist_ok=True)
    (run / place / "model_000030.pt").write_text("weights")
    left = work.count_written(run)
    assert (left.files, left.bytes) == (1, 7)
    assert [path for path, entry in work.listing(run).files.items() if not entry.origin] == [f"{place}/model_000030.pt"]
    assert not work.listing(run).links


def test_a_sent_file_reaches_the_script_whatever_its_folder_is_called(run, sent):
    (sent / ".config").mkdir()
    (sent / ".config/train.yaml").write_text("lr: 1")
    work.prepare(run, sent)
    assert (run / "work/.config/train.yaml").read_text() == "lr: 1"
    assert work.count_written(run) == work.FileTotals(0, 0)


def test_the_manifest_stamps_files_that_are_as_they_were_sent(run, sent):
    work.prepare(run, sent)
    (run / "work/train.py").write_text("changed by the script")
    work.prepare(run, sent)
    manifest = json.loads((run / "sent.json").read_text())
    status = (run / "work/pkg/model.py").stat()
    assert manifest["pkg/model.py"][1:] == [status.st_size, int(status.st_mtime)]
    assert manifest["train.py"][1:] == [-1, 0]


def test_files_that_a_script_wrote_into_the_images_folder_are_saved(run, tmp_path):
    import time

    app = tmp_path / "app"
    app.mkdir()
    (app / "train.py").write_text("of the image")
    time.sleep(0.02)  # the file system's clock has a coarse resolution
    began = time.time()
    (app / "out").mkdir()
    (app / "out/ckpt.pt").write_text("weights")
    work.save_changes(run, app, began - 0.01)
    assert (run / "work/out/ckpt.pt").read_text() == "weights"
    assert not (run / "work/train.py").exists()


def brought(run, *members, cut=0):
    """Unpack files from another node: members as (name, data, type, link). `cut`: bytes missing at the end."""
    (run / "work").mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mtime = kind, link, 1000
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(data))
    cut_off = io.BytesIO(stream.getvalue()[: -cut or None])
    with suppress(tarfile.TarError), tarfile.open(fileobj=cut_off, mode="r|") as tar:
        list(work.unpack(tar, run, "a"))


def file(name, data=b"theirs"):
    return name, data, tarfile.REGTYPE, ""


def test_files_that_only_other_hosts_had_come_in_and_replace_no_file_of_this_host(run, sent):
    work.prepare(run, sent)
    (run / "work/log.txt").write_text("mine")
    brought(run, file("work/outputs/ckpt.pt"), file("work/log.txt"), file("work/train.py"), file("home/.state"))
    assert work.prepare(run, sent) == []
    assert (run / "work/outputs/ckpt.pt").read_text() == "theirs"
    assert (run / "work/outputs/ckpt.pt").stat().st_mtime == 1000
    assert (run / "home/.state").read_text() == "theirs"
    assert (run / "work/log.txt").read_text() == "mine"
    assert (run / "work/train.py").read_text() == (sent / "train.py").read_text()


def test_a_copy_is_replaced_by_a_newer_one_unless_the_script_has_changed_it(run, sent):
    work.prepare(run, sent)
    for start in ("first", "second"):
        brought(run, file("work/last.pt", start.encode()), file("work/changed.pt", start.encode()))
        work.prepare(run, sent)
        assert (run / "work/last.pt").read_text() == start
        (run / "work/changed.pt").write_text("mine, since")
    assert (run / "work/changed.pt").read_text() == "mine, since"
    assert json.loads((run / "copies.json").read_text()) == {"work/last.pt": [6, 1000, "a"]}
    assert work.count_written(run).files == 1, "the copy is kept on the host that wrote it"


@pytest.mark.parametrize("manifest", ["", "[]", '{"work/log.txt": 3}', '{"work/log.txt": [4]}', '{"../x": [0, 0]}'])
def test_a_list_of_copies_that_a_script_damaged_lets_no_file_be_overwritten(run, sent, manifest):
    work.prepare(run, sent)
    (run / "work/log.txt").write_text("mine")
    (run / "copies.json").write_text(manifest)
    brought(run, file("work/log.txt"), file("work/good"))
    work.prepare(run, sent)
    assert (run / "work/log.txt").read_text() == "mine"
    assert (run / "work/good").exists()


@pytest.mark.holds("shared-inside")
@pytest.mark.parametrize(
    "member",
    [
        file("../outside"),
        file("work/../../outside"),
        file("/outside"),
        file("record.json"),
        file("keep/x"),
        file("work"),
        ("work/link", b"", tarfile.SYMTYPE, "/etc/passwd"),
        ("work/hard", b"", tarfile.LNKTYPE, "work/log.txt"),
        ("work/pipe", b"", tarfile.FIFOTYPE, ""),
        file("work/log.txt/below"),
        file("work/link-here"),
        file("work/folder-here/x"),
        file("work/folder-here/below/x"),
        file("/home/x"),
    ],
)
def test_files_from_other_hosts_stay_in_the_work_folder_and_make_no_link(run, sent, tmp_path, member):
    work.prepare(run, sent)
    (run / "work/log.txt").write_text("mine")
    (run / "work/link-here").symlink_to(tmp_path / "outside")
    (tmp_path / "dataset").mkdir()
    (run / "work/folder-here").symlink_to(tmp_path / "dataset")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    brought(run, member, file("work/good"))
    work.prepare(run, sent)
    ours = {(run / name).relative_to(tmp_path) for name in ("work/good", "copies.json")}
    after = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} - ours
    assert sorted(after) == before
    assert os.readlink(run / "work/link-here") == str(tmp_path / "outside")
    assert (run / "work/log.txt").read_text() == "mine"
    assert (run / "work/good").read_text() == "theirs"


@pytest.mark.holds("shared-inside")
def test_a_neighbours_copy_is_moved_through_no_link_of_the_script(run, sent, tmp_path):
    work.prepare(run, sent)
    (tmp_path / "dataset").mkdir()
    (run / "work/data").symlink_to(tmp_path / "dataset")
    stage = run / "stage"
    brought(stage, file("work/data/x"), file("work/out/model.pt"))
    work.move_in(stage, run, "node-1", ["work/data/x", "work/out/model.pt"])
    assert [*(tmp_path / "dataset").iterdir()] == []
    assert (run / "work/out/model.pt").read_text() == "theirs"


def test_a_file_that_arrived_only_in_part_is_not_kept(run, sent):
    brought(run, file("work/whole"), file("work/cut", b"x" * 20_000), cut=15_000)
    assert (run / "work/whole").exists()
    assert sorted(path.name for path in (run / "work").iterdir() if "cut" in path.name) == []


def test_a_torn_checkpoint_is_set_aside_and_nothing_outside_the_scripts_folders_is_moved(tmp_path):
    for path in ("work/out/step-2/rng-1.pt", "work/out/step-1/model.pt", "nodes/a/b"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "nodes")
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "way").symlink_to(tmp_path / "elsewhere")
    given = ["work/out/step-2", "work/out/step-9", "nodes/a", "work/../nodes", "work/link", "work", "work/way/deep"]
    assert work.set_aside(tmp_path, given) == ["work/out/step-2"]
    assert [path.name for path in (tmp_path / "work" / "out").iterdir()] == ["step-1"]
    assert [path.read_text() for path in (tmp_path / "torn").rglob("rng-1.pt")] == ["x"]


def test_a_pipe_in_place_of_one_of_musters_lists_blocks_nobody(run, sent):
    run.mkdir(exist_ok=True)
    for name in ("sent.json", "copies.json"):
        os.mkfifo(run / name)
    assert work.prepare(run, sent) == []
    assert (run / "work/train.py").exists()
