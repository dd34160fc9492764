"""A run's image, the layers that a host lacks, and the archive with these layers: pure computations."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.core.text import amount, pace
from deploy.send.image.archive import archive
from deploy.send.image.compression import GZIP, PLAIN, ZSTD, CompressedLayer, compress, decompress
from deploy.send.image.model import MARK, TOP, base_of, digest, full_name, run_image
from deploy.send.image.push_plan import (
    HostImage,
    Store,
    check_space,
    codec_for,
    is_based_on,
    parse_store,
    plan_push,
    replaced,
)
from deploy.send.road.cargo import of_bytes

LAYERS = {letter: f"layer {letter}".encode() * 1000 for letter in "abc"}
A, B, C = (digest(LAYERS[letter]) for letter in "abc")
INSPECTED = {
    "Id": "sha256:1",
    "RepoTags": ["base:1"],
    "RepoDigests": [],
    "Architecture": "amd64",
    "Os": "linux",
    "Created": "2026-01-01T00:00:00Z",
    "Size": 9,
    "RootFS": {"Type": "layers", "Layers": [A, B, C]},
    "Config": {
        "Hostname": "",
        "Env": ["PATH=/bin"],
        "User": "u",
        "WorkingDir": "/old",
        "Cmd": None,
        "Labels": {"own": "1"},
    },
}
BASE = base_of("base:1", INSPECTED)
IMAGE = run_image(BASE, "run:1")
STORE = Store("26.1.5", "amd64", "linux", False, "/var/lib/docker", 10**12, ())


def holding(*images):
    """A host with images that have these layers."""
    held = [HostImage(f"sha256:{number}", (f"other:{number}",), layers, "") for number, layers in enumerate(images)]
    return replace(STORE, images=tuple(held))


def test_the_configuration_is_that_of_the_base_with_our_labels():
    config = json.loads(IMAGE.config)
    assert config["rootfs"] == {"type": "layers", "diff_ids": [A, B, C]}
    assert len(config["history"]) == 3
    assert config["config"]["User"] == "u"
    assert config["config"]["WorkingDir"] == "/old"
    assert config["config"]["Labels"]["own"] == "1"
    assert config["config"]["Labels"][TOP] == C


def test_in_a_foreign_image_python_finds_the_trainer_and_the_user_has_a_home():
    def variables(*given):
        base = replace(BASE, settings={**BASE.settings, "Env": list(given)})
        return json.loads(run_image(base, "run:1").config)["config"]["Env"]

    assert sorted(variables("PATH=/bin")) == ["HOME=/tmp", "PATH=/bin", "PYTHONPATH=/muster/code", "USER=muster"]
    assert "PYTHONPATH=/muster/code:/app:/lib" in variables("PYTHONPATH=/app:/lib")
    assert "HOME=/root" in variables("HOME=/root")
    ours = ["PATH=/bin", "PYTHONPATH=/muster"]
    assert variables(*ours) == ours


def test_details_that_only_some_engines_report_do_not_change_the_image():
    newer = base_of(
        "base:1",
        {**INSPECTED, "Config": {"Env": ["PATH=/bin"], "User": "u", "WorkingDir": "/old", "Labels": {"own": "1"}}},
    )
    assert run_image(newer, "run:1") == IMAGE


def test_the_mark_depends_on_the_configuration_and_not_on_the_name():
    other = base_of("base:1", {**INSPECTED, "Config": {**INSPECTED["Config"], "Env": ["PATH=/sbin"]}})
    assert run_image(other, "run:1").mark != IMAGE.mark
    assert run_image(BASE, "run:2").mark == IMAGE.mark


def test_an_image_does_not_have_the_label_that_cleaning_uses():
    assert "muster.run" not in json.loads(IMAGE.config)["config"]["Labels"]


@pytest.mark.parametrize(
    ("tag", "whole"),
    [
        ("run", "docker.io/library/run:latest"),
        ("a/run:1", "docker.io/a/run:1"),
        ("localhost/run:1", "localhost/run:1"),
        ("host:5000/run", "host:5000/run:latest"),
        ("ghcr.io/a/b:2", "ghcr.io/a/b:2"),
    ],
)
def test_names_are_written_out_as_engines_do(tag, whole):
    assert full_name(tag) == whole


@pytest.mark.parametrize("tag", ["", "Run", "run:", "run 1", "-x", "run:1 --privileged", "a//b"])
def test_an_invalid_image_name_is_wrong_usage(tag):
    with pytest.raises(UsageError, match="not an image name"):
        run_image(BASE, tag)


def test_a_layer_is_left_out_only_if_the_host_has_all_layers_below_it_too():
    assert plan_push(IMAGE, STORE).layers == (A, B, C)
    assert plan_push(IMAGE, holding((A,))).layers == (B, C)
    assert plan_push(IMAGE, holding((B, A), (A, B))).layers == (C,)
    assert plan_push(IMAGE, holding((B, C))).layers == (A, B, C)
    assert plan_push(IMAGE, holding((A, B, C))).layers == ()


def test_an_image_is_present_only_with_the_same_name_layers_and_configuration():
    same = HostImage("sha256:9", ("run:1",), IMAGE.layers, IMAGE.mark)
    for on_host, present in (
        (same, True),
        (replace(same, tags=("run:2",)), False),
        (replace(same, mark=""), False),
        (replace(same, layers=(A, B)), False),
    ):
        assert plan_push(IMAGE, replace(STORE, images=(on_host,))).present is present


def test_an_image_is_built_on_the_base_that_made_it_and_on_no_other():
    pushed, plain = (HostImage("1", (name,), (A, B, C), mark) for name, mark in (("run:1", IMAGE.mark), ("base:1", "")))
    settings = {**BASE.settings, "Env": ["PATH=/bin", "GLOO_SOCKET_IFNAME=eth9"]}
    for base, same in (
        (BASE, True),
        (replace(BASE, settings=settings), False),  # the same layers, since ENV adds none
        (replace(BASE, layers=(A,)), False),
        (replace(BASE, layers=(B, A)), False),
    ):
        assert is_based_on(base, pushed) is same
    assert is_based_on(BASE, plain)
    assert not is_based_on(replace(BASE, layers=(A,)), plain)


def test_only_images_that_pushes_made_and_that_have_no_other_name_are_replaced():
    images = (
        HostImage("before", ("run:1",), (A,), "old"),
        HostImage("nameless", (), (A,), "older"),
        HostImage("two names", ("run:1", "kept:1"), (A,), "old"),
        HostImage("another run", ("run:2",), (A,), "old"),
        HostImage("a user's", (), (A,), ""),
        HostImage("the same", ("run:1",), IMAGE.layers, IMAGE.mark),
    )
    assert replaced(IMAGE, replace(STORE, images=images)) == ("before", "nameless")


def test_a_host_with_another_architecture_is_refused():
    with pytest.raises(DeployError, match="run:1 is for linux/amd64, but this host is linux/arm64"):
        plan_push(IMAGE, replace(STORE, architecture="arm64"))
    with pytest.raises(DeployError, match="muster-trainer:cpu is for linux/amd64") as refusal:
        plan_push(IMAGE, replace(STORE, architecture="arm64"), "muster-trainer:cpu")
    assert "DOCKER_DEFAULT_PLATFORM=linux/arm64 make image" in refusal.value.hint


def test_the_compression_is_one_that_the_engine_can_read():
    assert codec_for(replace(STORE, version="20.10.24+dfsg1")) is GZIP
    assert codec_for(replace(STORE, version="24.0.7", containerd=True)) is PLAIN
    assert codec_for(replace(STORE, version="26.1.5")) is GZIP
    assert codec_for(replace(STORE, version="29.7.2", containerd=True)) is ZSTD
    assert codec_for(replace(STORE, version="dev")) is GZIP


def test_too_little_disk_space_is_refused_with_both_figures():
    check_space(replace(STORE, free=None), [10**15])
    check_space(replace(STORE, free=3 * 10**9), [10**9])
    with pytest.raises(DeployError, match=r"in /var/lib/docker: the image needs 4.1 GB, 3.0 GB are free"):
        check_space(replace(STORE, free=3 * 10**9), [10**9, 10**9])


def test_a_hosts_answer_is_parsed_past_unrelated_lines():
    output = "\n".join(
        [
            "WARNING: No swap limit support",
            '{"version":"29.0.1","machine":"aarch64","system":"linux",'
            '"status":[["driver-type","io.containerd.snapshotter.v1"]],"root":"/var/lib/docker"}',
            "/var/lib/docker",
            '{"free":"1024"}',
            f'{{"id":"sha256:1","tags":["a:1"],"labels":null,"layers":["{A}"]}}',
            f'{{"id":"sha256:2","tags":null,"labels":{{"{MARK}":"m","{TOP}":"{A}"}},"layers":["{A}"]}}',
            f'{{"id":"sha256:3","tags":["built:1"],"labels":{{"{MARK}":"m","{TOP}":"{A}"}},"layers":["{A}","{B}"]}}',
            '{"id":"sha256:4","tags":null,"labels":null,"layers":null}',
        ]
    )
    store = parse_store(output)
    assert (store.version, store.architecture, store.containerd, store.free) == ("29.0.1", "arm64", True, 1024**2)
    assert store.images == (
        HostImage("sha256:1", ("a:1",), (A,), ""),
        HostImage("sha256:2", (), (A,), "m"),
        HostImage("sha256:3", ("built:1",), (A, B), ""),  # somebody built it on top of ours
        HostImage("sha256:4", (), (), ""),
    )


@pytest.mark.parametrize("output", ["", "Welcome!", '{"version":""}'])
def test_an_empty_answer_of_an_engine_is_an_error(output):
    with pytest.raises(DeployError, match="did not say what it is"):
        parse_store(output)


@pytest.mark.parametrize("codec", [ZSTD, GZIP, PLAIN], ids=lambda codec: codec.name)
def test_an_archive_has_its_length_its_layers_and_its_names_last(codec):
    layers = []
    for content in (LAYERS["b"], LAYERS["c"]):
        pieces = list(compress([content], codec))
        layers.append(CompressedLayer(digest(content), len(content), of_bytes(b"".join(pieces))))
    parcel = archive(IMAGE, layers, {A: 7}, codec)
    stream = b"".join(parcel.chunks())
    assert len(stream) == parcel.size
    assert b"".join(parcel.chunks()) == stream  # a second read, as for the next host
    whole = decompress(io.BufferedReader(io.BytesIO(stream))).read()
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}
    assert list(files)[-2:] == ["index.json", "manifest.json"]
    blobs = {name.removeprefix("blobs/sha256/"): data for name, data in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    (named,) = json.loads(files["manifest.json"])
    assert named["RepoTags"] == ["run:1"]
    assert [path in files for path in named["Layers"]] == [False, True, True]
    assert files[named["Config"]] == IMAGE.config
    entry = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
    assert [layer["size"] for layer in manifest["layers"]] == [7, len(LAYERS["b"]), len(LAYERS["c"])]
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/run:1"


def test_the_progress_of_a_transfer_in_words():
    assert pace(0, 450_000_000, 0.0) == "0 B of 450 MB"
    assert pace(300_000_000, 450_000_000, 10.0) == "300 MB of 450 MB, 30 MB/s, 5 s left"
    assert pace(1_000_000, 1_000_000, 0.5) == "1.0 MB of 1.0 MB, 2.0 MB/s, in 0.5 s"
    assert amount(1_234_567_890) == "1.2 GB"
