"""Pushing to real engines: what arrives is what was meant, only what lacks is sent, and nothing half is left.

The host is a second engine on this machine, reached without SSH; tests/cluster/ pushes over SSH.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed
from deploy.door import session
from deploy.image import push as transfer
from deploy.image.folder_look import FolderLook
from deploy.image.layer_cache import LayerCache
from deploy.image.model import CONTRACT, CONTRACT_LABEL
from lab.waiting import until

BASE_BYTES = 6_000_000


class Nearby:
    """A session's interface to an engine on this machine; `before(argv)` is called before each command."""

    def __init__(self, name, socket):
        self.host = SimpleNamespace(name=name)
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
        self.before = lambda argv: None
        self.asked = []

    def run(self, argv, *, input=None, timeout_s=60, check=True, on_line=None, moving=False):
        self.before(argv)
        self.asked.append(tuple(argv))
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            lines = []
            reader = threading.Thread(target=lambda: lines.append(process.stderr.read()))
            reader.start()
            try:
                for chunk in [input] if isinstance(input, bytes) else input or ():
                    process.stdin.write(chunk)
                process.stdin.close()
            except BrokenPipeError:
                pass  # its exit code says why
            except BaseException:
                process.stdin.close()  # as a connection that ends
                raise
            out = process.stdout.read()
            reader.join()
        assert not check or process.returncode == 0, lines
        return session.Done(process.returncode, out.decode(), lines[0].decode())

    def docker(self, *arguments):
        """Standard output of a docker command on this engine."""
        return self.run(("docker", *arguments)).out.strip()

    def layers(self, tag):
        return self.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", tag)


@pytest.fixture(scope="module", params=["classic", "containerd"])
def engine_there(request, docker):
    """A second engine with this image store, empty, with no network of its own."""
    if os.getuid() or not shutil.which("dockerd"):
        pytest.skip("a second engine needs root and dockerd")
    version = subprocess.run(["dockerd", "--version"], capture_output=True, text=True).stdout.split()[2]
    if request.param == "containerd" and int(version.split(".")[0]) < 25:
        pytest.skip(f"dockerd {version} has no containerd image store")
    home = Path(tempfile.mkdtemp(prefix="muster-e-"))  # not tmp_path: a socket's path is short
    features = '{"features":{"containerd-snapshotter":true}}' if request.param == "containerd" else "{}"
    (home / "daemon.json").write_text(features)
    # In a network namespace: a dockerd started with `--bridge none` deletes docker0, the first engine's.
    command = [
        "unshare",
        "--net",
        "dockerd",
        "--config-file",
        home / "daemon.json",
        "--host",
        f"unix://{home}/sock",
        "--bridge",
        "none",
    ]
    command += ["--data-root", home / "root", "--exec-root", home / "exec", "--pidfile", home / "pid"]
    command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        ask = ["docker", "-H", f"unix://{home}/sock", "info"]
        until(lambda: subprocess.run(ask, capture_output=True).returncode == 0, "the second engine")
        yield f"{home}/sock", home / "root"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def host(engine_there):
    """A session to the second engine, which is empty again afterwards."""
    nearby = Nearby("there", engine_there[0])
    yield nearby
    nearby.before = lambda argv: None
    for image in nearby.docker("image", "ls", "--all", "--quiet").split():
        nearby.run(("docker", "image", "rm", "--force", image), check=False)


@pytest.fixture
def base(docker):
    """The name of a local image of one layer of 6 MB that says it has the trainer; gone afterwards."""
    name = f"muster-test-base:{uuid.uuid4().hex[:8]}"
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        entry = tarfile.TarInfo("data")
        entry.size = BASE_BYTES
        tar.addfile(entry, io.BytesIO(random.randbytes(BASE_BYTES)))
    subprocess.run(
        [
            "docker",
            "import",
            "--change",
            "ENV KEPT=yes PYTHONPATH=/muster",
            "--change",
            f"LABEL {CONTRACT_LABEL}={CONTRACT}",
            "-",
            name,
        ],
        input=written.getvalue(),
        check=True,
    )
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True)


@pytest.fixture
def folder(tmp_path):
    """A script and 100 kB beside it."""
    home = tmp_path / "code"
    home.mkdir()
    (home / "train.py").write_text("print(1)\n")
    (home / "table").write_bytes(random.randbytes(100_000))
    return home


@pytest.fixture
def push(host, base, folder, tmp_path):
    """push() -> what it did on the host; raises its fault."""

    def run(tell=lambda host, sent, total: None, tag="muster-test:run", folder=folder):
        cache, code = LayerCache(tmp_path / "layers"), FolderLook(folder, cache=tmp_path) if folder else None
        return transfer.push([host], base, code, tag, tell, cache).all()["there"]

    return run


def test_a_cold_push_sends_all_and_the_host_can_make_containers_of_it(push, host):
    progress = []
    done = push(lambda host, sent, total: progress.append((host, sent, total)))
    assert done.sent_bytes > BASE_BYTES
    assert done.why == "the host has none of its layers"
    assert {host for host, _, _ in progress} == {"there", transfer.READER}
    assert [entry for entry in progress if entry[0] == "there"][-1] == ("there", done.sent_bytes, done.sent_bytes)
    container = host.docker("create", "muster-test:run", "true")
    host.docker("cp", f"{container}:/workspace/train.py", "-")
    settings = host.docker("inspect", "--format", "{{.Config.WorkingDir}} {{.Config.Env}}", container)
    host.docker("rm", container)
    assert settings == "/workspace [KEPT=yes PYTHONPATH=/muster]"


def test_a_second_push_sends_nothing_and_says_so(push, host):
    push()
    host.asked.clear()
    assert push() == transfer.Pushed(0, "the host has it")
    assert not [argv for argv in host.asked if any("docker load" in word for word in argv)]


def test_a_change_of_code_sends_the_code_alone_and_the_image_it_replaces_goes(push, host, folder):
    push()
    before = host.layers("muster-test:run")
    (folder / "train.py").write_text("print(2)\n")
    done = push()
    assert 100_000 < done.sent_bytes < 130_000
    assert host.layers("muster-test:run") != before
    assert len(host.docker("image", "ls", "--quiet").split()) == 1
    assert host.docker("ps", "--all", "--quiet") == ""


def test_an_image_in_use_is_not_removed_when_its_name_moves(push, host, folder):
    push()
    container = host.docker("create", "muster-test:run", "true")
    (folder / "train.py").write_text("print(3)\n")
    push()
    host.docker("inspect", container)
    host.docker("cp", f"{container}:/workspace/train.py", "-")
    host.docker("rm", container)


def test_without_a_folder_the_base_itself_arrives(push, host, base):
    push(folder=None)
    local = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", base], capture_output=True, text=True
    )
    assert host.layers("muster-test:run") == local.stdout.strip()


def test_what_would_be_sent_is_foreseen_and_nothing_is_done(push, host, base, folder):
    (foreseen,) = transfer.foresee([host], base, FolderLook(folder), "muster-test:run").all().values()
    assert len(foreseen.layers) == 2
    assert host.docker("image", "ls", "--quiet") == ""
    push()
    (foreseen,) = transfer.foresee([host], base, FolderLook(folder), "muster-test:run").all().values()
    assert foreseen.present


def test_layers_that_vanish_between_question_and_answer_are_sent_after_all(push, host, folder):
    push()
    (folder / "train.py").write_text("print(4)\n")

    def vanish(argv):
        if any("docker load" in word for word in argv):
            host.before = lambda argv: None
            host.docker("image", "rm", "muster-test:run")

    host.before = vanish
    done = push()
    assert done.why == "all layers: those of the host did not give this image"
    assert done.sent_bytes > BASE_BYTES
    host.docker("rm", host.docker("create", "muster-test:run", "true"))


def test_a_push_cut_in_the_middle_leaves_nothing_and_the_next_one_works(push, host, engine_there):
    def cut(host, sent, total):
        if host == "there" and sent > total / 2:
            raise DeployError("cut")

    with pytest.raises(DeployError, match="cut"):
        push(cut)
    temporary = [engine_there[1] / "tmp", *engine_there[1].rglob("io.containerd.content.v1.content/ingest")]
    until(lambda: not [path for folder in temporary if folder.exists() for path in folder.iterdir()], "no leftovers")
    assert host.docker("image", "ls", "--all", "--quiet") == ""
    assert push().sent_bytes > BASE_BYTES


def test_on_a_base_that_came_another_way_only_code_is_sent_and_then_nothing(push, host, base, tmp_path):
    saved = subprocess.run(["docker", "save", base], capture_output=True, check=True).stdout
    host.run(("docker", "load"), input=[saved])
    assert push().sent_bytes < 130_000
    assert not list((tmp_path / "layers").glob("*"))
    host.docker("image", "rm", base)
    assert push().sent_bytes == 0
    host.docker("rm", host.docker("create", "muster-test:run", "true"))


def test_a_base_only_the_host_has_gets_the_code_alone(push, host, base, folder, tmp_path):
    push()
    host.docker("tag", "muster-test:run", "only-there:1")
    cache = LayerCache(tmp_path / "none")
    code = FolderLook(folder, cache=tmp_path)
    pushed = transfer.push([host], "only-there:1", code, "muster-test:other", lambda *progress: None, cache).all()
    done = pushed["there"]
    assert done.sent_bytes < 130_000
    host.docker("rm", host.docker("create", "muster-test:other", "true"))


def test_a_base_nobody_has_is_a_fault_that_says_why(host, folder):
    absent = "localhost:1/absent:1"  # port 1: nobody serves a registry there
    with pytest.raises(DeployError, match=r"neither on this machine nor on there, which cannot pull it: .*127.0.0.1:1"):
        transfer.push([host], absent, FolderLook(folder), "muster-test:run", lambda *progress: None)


def test_a_host_without_docker_or_without_an_engine_says_so(base, folder, tmp_path):
    gone = Nearby("gone", tmp_path / "no-socket")
    bare = Nearby("bare", tmp_path / "no-socket")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    bare.environment["PATH"] = str(tmp_path / "bin")
    with pytest.raises(HostsFailed) as failed:
        transfer.push([gone, bare], base, FolderLook(folder), "muster-test:run", lambda *progress: None)
    faults = failed.value.faults
    assert "the Docker engine does not answer" in faults["gone"].message
    assert "there is no `docker` command" in faults["bare"].message


def test_images_that_a_user_made_stay_even_without_a_name_and_from_one_of_ours(push, host, folder):
    push()
    container = host.docker("create", "muster-test:run", "true")
    host.docker("cp", __file__, f"{container}:/workspace/mine.py")
    theirs = host.docker("commit", container)
    host.docker("rm", container)
    (folder / "train.py").write_text("print(5)\n")
    push()
    host.docker("image", "inspect", theirs)
