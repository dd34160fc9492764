"""Pushes to real engines: the right content arrives, only missing parts are sent, and nothing partial is left.

The host is a second engine on this machine, reached without SSH; tests/cluster/ pushes over SSH.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed
from deploy.door import session
from deploy.send.folder.folder_look import FolderLook
from deploy.send.image import push as transfer
from deploy.send.image.layer_cache import LayerCache
from deploy.send.image.model import CONTRACT, CONTRACT_LABEL
from lab.waiting import until

BASE_BYTES = 6_000_000


class Nearby:
    """Stands in for a session, on an engine of this machine; `before(argv)` is called before each command."""

    def __init__(self, name, socket, home):
        self.name = name
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}", "HOME": str(home)}
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
                pass  # the exit code gives the reason
            except BaseException:
                process.stdin.close()  # as when a connection ends
                raise
            out = process.stdout.read()
            reader.join()
        assert not check or process.returncode == 0, lines
        return session.Done(process.returncode, out.decode(), lines[0].decode())

    def get_or_make(self, name, make):
        return make()

    def connect(self, path):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(path)
        return connection

    def lost(self):
        """Nothing can be lost between this machine and itself."""

    def docker(self, *arguments):
        """Standard output of a docker command on this engine."""
        return self.run(("docker", *arguments)).out.strip()

    def layers(self, tag):
        return self.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", tag)


@pytest.fixture(scope="module", params=["classic", "containerd"])
def engine_there(request, docker):
    """A second engine with this image store, empty and without a network."""
    if os.getuid() or not shutil.which("dockerd"):
        pytest.skip("a second engine needs root and dockerd")
    version = subprocess.run(["dockerd", "--version"], capture_output=True, text=True).stdout.split()[2]
    if request.param == "containerd" and int(version.split(".")[0]) < 25:
        pytest.skip(f"dockerd {version} has no containerd image store")
    home = Path(tempfile.mkdtemp(prefix="muster-e-"))  # not tmp_path, because a socket's path must be short
    features = '{"features":{"containerd-snapshotter":true}}' if request.param == "containerd" else "{}"
    (home / "daemon.json").write_text(features)
    # In its own network namespace: a dockerd started with `--bridge none` deletes docker0, the first engine's bridge.
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
def host(engine_there, tmp_path):
    """A session to the second engine; all images there are removed afterwards."""
    (tmp_path / "home").mkdir()
    nearby = Nearby("there", engine_there[0], tmp_path / "home")
    yield nearby
    nearby.before = lambda argv: None
    for image in nearby.docker("image", "ls", "--all", "--quiet").split():
        nearby.run(("docker", "image", "rm", "--force", image), check=False)


@pytest.fixture
def new_base(docker):
    """new_base() -> a new local image with one layer of 6 MB and the trainer's label; removed afterwards."""
    made = []

    def build(variables="KEPT=yes PYTHONPATH=/muster"):
        name = f"muster-test-base:{uuid.uuid4().hex[:8]}"
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w") as tar:
            entry = tarfile.TarInfo("data")
            entry.size = BASE_BYTES
            tar.addfile(entry, io.BytesIO(random.randbytes(BASE_BYTES)))
        changes = ("--change", f"ENV {variables}", "--change", f"LABEL {CONTRACT_LABEL}={CONTRACT}")
        subprocess.run(["docker", "import", *changes, "-", name], input=written.getvalue(), check=True)
        made.append(name)
        return name

    yield build
    subprocess.run(["docker", "image", "rm", *made], capture_output=True)


@pytest.fixture
def base(new_base):
    return new_base()


@pytest.fixture
def folder(tmp_path):
    """A script and a file of 100 kB."""
    home = tmp_path / "code"
    home.mkdir()
    (home / "train.py").write_text("print(1)\n")
    (home / "table").write_bytes(random.randbytes(100_000))
    return home


@pytest.fixture
def push(host, base, folder, tmp_path):
    """push() pushes to the host and returns what was done there; raises the host's error."""

    def run(tell=lambda host, sent, total, source="": None, tag="muster-test:run", folder=folder, base=base):
        cache, code = LayerCache(tmp_path / "layers"), FolderLook(folder, cache=tmp_path) if folder else None
        return transfer.push([host], base, code, tag, tell, cache).all()["there"]

    return run


def test_a_cold_push_sends_all_and_the_host_can_create_containers_from_it(push, host, folder):
    progress = []
    done = push(lambda host, sent, total, source="": progress.append((host, sent, total)))
    assert done.sent_bytes > BASE_BYTES
    assert done.why == "the host has none of its layers; all 2 files of your folder"
    assert {host for host, _, _ in progress} == {"there", transfer.READER}
    assert all(sent <= total for _, sent, total in progress)
    container = host.docker("create", "muster-test:run", "true")
    settings = host.docker("inspect", "--format", "{{.Config.Env}}", container)
    host.docker("rm", container)
    assert settings == "[KEPT=yes PYTHONPATH=/muster]"
    (beside,) = done.folders
    assert beside.target == "/workspace"
    assert [(Path(beside.place) / name).read_bytes() == (folder / name).read_bytes() for name in ("train.py", "table")]


def test_an_image_without_the_agent_gets_it_as_a_folder_on_its_python_path(push, host, new_base):
    foreign = new_base("PYTHONPATH=/app")
    done = push(base=foreign, folder=None)
    (agent,) = done.folders
    assert agent.target == "/muster/code"
    assert (Path(agent.place) / "muster/trainer/node/agent/agent.py").is_file()
    env = host.docker("image", "inspect", "--format", "{{.Config.Env}}", "muster-test:run")
    assert "PYTHONPATH=/muster/code:/app" in env
    assert push(base=foreign, folder=None).sent_bytes == 0


def test_a_second_push_sends_nothing_and_says_so(push, host):
    lying = tuple(replace(each, lacking="", bytes=0) for each in push().folders)
    host.asked.clear()
    assert push() == transfer.Pushed(0, "the host has it", lying)
    assert not [argv for argv in host.asked if any("docker load" in word for word in argv)]


def test_a_code_change_sends_only_the_change_and_keeps_the_engines_image(push, host, folder):
    push()
    before = host.layers("muster-test:run")
    (folder / "train.py").write_text("print(2)\n")
    done = push()
    assert 0 < done.sent_bytes < 10_000
    assert host.layers("muster-test:run") == before
    assert (Path(done.folders[0].place) / "train.py").read_text() == "print(2)\n"
    assert host.docker("ps", "--all", "--quiet") == ""


def test_an_image_replaced_by_one_with_another_base_is_removed(push, host, new_base):
    push()
    push(base=new_base())
    assert len(host.docker("image", "ls", "--quiet").split()) == 1


def test_an_image_in_use_is_not_removed_when_its_name_moves(push, host, new_base, tmp_path):
    push()
    container = host.docker("create", "muster-test:run", "true")
    push(base=new_base())
    host.docker("inspect", container)
    host.docker("cp", f"{container}:/data", str(tmp_path / "data"))
    assert (tmp_path / "data").stat().st_size == BASE_BYTES
    host.docker("rm", container)


def test_without_a_folder_the_base_itself_arrives(push, host, base):
    push(folder=None)
    local = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", base], capture_output=True, text=True
    )
    assert host.layers("muster-test:run") == local.stdout.strip()


def test_a_forecast_reports_what_would_be_sent_and_sends_nothing(push, host, base, folder):
    (foreseen,) = transfer.foresee([host], base, FolderLook(folder), "muster-test:run").all().values()
    assert len(foreseen.layers) == 1
    assert [each.lacking for each in foreseen.folders] == ["all 2 files of your folder"]
    assert host.docker("image", "ls", "--quiet") == ""
    assert not Path(foreseen.folders[0].place).exists()
    push()
    (foreseen,) = transfer.foresee([host], base, FolderLook(folder), "muster-test:run").all().values()
    assert foreseen.present


def test_layers_that_vanish_between_question_and_answer_are_sent_after_all(push, host):
    push(tag="muster-test:before")

    def vanish(argv):
        if any("docker load" in word for word in argv):
            host.before = lambda argv: None
            host.docker("image", "rm", "muster-test:before")

    host.before = vanish
    done = push()
    assert done.why == "all layers, because those on the host did not make this image"
    assert done.sent_bytes > BASE_BYTES
    host.docker("rm", host.docker("create", "muster-test:run", "true"))


def test_a_push_cut_in_the_middle_leaves_nothing_and_the_next_one_works(push, host, engine_there):
    def cut(host, sent, total, source=""):
        if host == "there" and sent > total / 2:
            raise DeployError("cut")

    with pytest.raises(DeployError, match="cut"):
        push(cut)
    temporary = [engine_there[1] / "tmp", *engine_there[1].rglob("io.containerd.content.v1.content/ingest")]
    until(lambda: not [path for folder in temporary if folder.exists() for path in folder.iterdir()], "no leftovers")
    assert host.docker("image", "ls", "--all", "--quiet") == ""
    assert push().sent_bytes > BASE_BYTES


def test_a_base_loaded_another_way_is_not_sent_again(push, host, base, tmp_path):
    saved = subprocess.run(["docker", "save", base], capture_output=True, check=True).stdout
    host.run(("docker", "load"), input=[saved])
    assert push(folder=None).sent_bytes < 10_000
    assert not list((tmp_path / "layers").glob("*"))
    host.docker("image", "rm", base)
    assert push(folder=None).sent_bytes == 0
    host.docker("rm", host.docker("create", "muster-test:run", "true"))


def test_a_base_that_only_the_host_has_gets_only_the_code(push, host, base, folder, tmp_path):
    push()
    host.docker("tag", "muster-test:run", "only-there:1")
    cache = LayerCache(tmp_path / "none")
    code = FolderLook(folder, cache=tmp_path)
    pushed = transfer.push([host], "only-there:1", code, "muster-test:other", lambda *progress: None, cache).all()
    done = pushed["there"]
    assert done.sent_bytes < 10_000
    host.docker("rm", host.docker("create", "muster-test:other", "true"))


def test_a_base_that_nobody_has_gives_an_error_with_the_reason(host, folder):
    absent = "localhost:1/absent:1"  # port 1: no registry listens there
    with pytest.raises(
        DeployError, match=r"not on this machine, and not on there, which cannot pull it: .*127.0.0.1:1"
    ):
        transfer.push([host], absent, FolderLook(folder), "muster-test:run", lambda *progress: None)


def test_a_host_without_docker_or_without_an_engine_says_so(base, folder, tmp_path):
    gone = Nearby("gone", tmp_path / "no-socket", tmp_path)
    bare = Nearby("bare", tmp_path / "no-socket", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    bare.environment["PATH"] = str(tmp_path / "bin")
    with pytest.raises(HostsFailed) as failed:
        transfer.push([gone, bare], base, FolderLook(folder), "muster-test:run", lambda *progress: None)
    faults = failed.value.faults
    assert "the Docker engine does not answer" in faults["gone"].message
    assert "there is no `docker` command" in faults["bare"].message


def test_a_users_unnamed_image_made_from_a_muster_image_is_kept(push, host, new_base):
    push()
    container = host.docker("create", "muster-test:run", "true")
    host.docker("cp", __file__, f"{container}:/mine.py")
    theirs = host.docker("commit", container)
    host.docker("rm", container)
    push(base=new_base())
    host.docker("image", "inspect", theirs)
