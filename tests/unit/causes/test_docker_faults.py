"""Docker's messages mean the same wherever they are read: one cause, one hint."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.causes import docker_faults
from deploy.causes.docker_faults import CAUSES
from deploy.causes.table import ROWS
from deploy.core.errors import DeployError
from deploy.door.session import Done
from deploy.engine import client, reach
from deploy.explain.signs.table import SIGNS
from deploy.host import facts
from deploy.preflight import refusals
from deploy.send.image import push

DOCS = Path(__file__).resolve().parents[3] / "docs/reference/causes.md"
DAEMON = "Error response from daemon: "
TEXTS = {
    DAEMON + 'could not select device driver "" with capabilities: [[gpu]].': "gpu-runtime",
    DAEMON + "unknown or invalid runtime name: nvidia": "gpu-runtime",
    DAEMON + 'while adding custom device "nvidia.com/gpu=all": no such file or directory': "gpu-runtime",
    "nvidia-container-cli: initialization error: nvml error: driver not loaded": "gpu-driver",
    "write /var/lib/docker/tmp/x: no space left on device": "disk-full",
    DAEMON + 'error gathering device information while adding custom device "/dev/infiniband"': "rdma-hidden",
    "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted": "memlock",
    "exec /bin/sh: exec format error": "architecture-differs",
    'OCI runtime create failed: exec: "sh": executable file not found in $PATH': "image-without-python",
    DAEMON + "invalid mount config for type bind: bind source path does not exist: /data": "mount-missing",
    "Error: No such image: muster:abc": "image-missing",
    "failed to extract layer sha256:1: layer does not exist": "image-missing",
    "no answer within 15 s": "docker-silent",
    "sh: 8: docker: not found": "docker-missing",
    "zsh: command not found: docker": "docker-missing",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?": "docker-down",
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/d": "docker-permission",
    "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock": "docker-permission",
    DAEMON + "conflict: the name is in use": "docker-refused",
    DAEMON + "AppArmor enabled on system but the docker-default profile could not be loaded": "docker-refused",
}


class Host:
    """A host whose Docker fails every command with this message."""

    name, host = "gpu-b", SimpleNamespace(name="gpu-b")
    home = "/home/u/.muster"

    def __init__(self, words: str) -> None:
        self._words = words

    def run(self, argv, **more):
        return Done(1, "", self._words)

    def get_or_make(self, name, make):
        return make()


def fault(act) -> DeployError:
    with pytest.raises(DeployError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize(("words", "name"), TEXTS.items())
def test_the_same_message_gives_the_same_hint_wherever_it_is_read(words, name):
    hint = docker_faults.hint(words, "")
    image, base = SimpleNamespace(tag="t"), SimpleNamespace(name="b", sources=())
    doors = {
        "a look at a host": lambda: facts.parse(f"home /home/u\nengine-error {words}", 0),
        "a push that looks": lambda: push.look(Host(words), image, base),
    }
    for door, act in doors.items():
        assert fault(act).hint == hint, door
    asked = fault(lambda: reach.on_host(Host(words)).containers("muster.run"))
    assert asked.hint == docker_faults.hint(words, "gpu-b")
    assert docker_faults.read_cause(words).name == name
    assert refusals.of_words("gpu-b", "hosts", "docker", words).cause == name
    assert ROWS[name].hint("gpu-b") == docker_faults.cause_of_slug(name).row.hint("gpu-b")


@pytest.mark.parametrize(("words", "name"), TEXTS.items())
def test_explain_recognises_messages_that_only_docker_prints(words, name):
    cause = docker_faults.cause_of_slug(name)
    if cause.in_logs:
        first = next(sign for sign in SIGNS if sign.pattern.search(words))
        assert (first.cause, first.next) == (name, cause.row.plain_command)


@pytest.mark.parametrize(("words", "name"), TEXTS.items())
def test_a_compose_fault_on_this_machine_has_the_same_next_command(words, name):
    hint = client._compose_fault(words).hint
    assert hint.startswith(
        "clean up" if name == "docker-refused" else docker_faults.cause_of_slug(name).row.hint_here()
    )


def test_every_cause_has_an_entry_and_complete_commands():
    entries = set(DOCS.read_text().split("\n"))
    rows = [cause.row for cause in CAUSES]
    assert not [row.slug for row in rows if f"### {row.slug}" not in entries]
    assert not [json.dumps(row.command) for row in rows if "{" in row.hint("x") + row.hint_here()]


def test_a_missing_image_is_no_engine_failure():
    assert docker_faults.engine_failed("Error response from daemon: stat /var/lib/docker/overlay2/fb: no such file")
    assert not docker_faults.engine_failed("[]\nError response from daemon: No such image: x:latest")
    assert not docker_faults.engine_failed("Error: No such object: x")
    assert docker_faults.engine_failed("docker: image is not a docker command.")
    assert not docker_faults.engine_failed("")


def test_only_one_module_reads_dockers_no_such_messages():
    texts = ("no such image", "no such container")
    files = (Path(__file__).resolve().parents[3] / "deploy").rglob("*.py")
    readers = {path for path in files if any(text in path.read_text().lower() for text in texts)}
    # explain/ reads logs, where anybody may have printed such words; engine/bare/ is an engine, which prints them.
    others = {path.name for path in readers if path.parent.name not in ("signs", "rows")}
    assert others == {"docker_faults.py", "store.py"}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("write /var/tmp/x/layer.tar: no space left on device", "on b: df -h /var/tmp/x; df -i /var/tmp/x;"),
        ("Error: write /a;reboot/b: no space left on device", "on b: df -h /var/lib/docker;"),
        ("docker: Error response from daemon: bind source path does not exist: /data.", "on b: ls -ld FOLDER;"),
        ("something else", "on b: docker info;"),
        (
            f"{DAEMON}could not copy source hosts file /etc/hosts to /v/x: read /etc/hosts: is a directory.",
            "on b: sudo ls -ld /etc/hosts; journalctl",
        ),
        (
            f"{DAEMON}mkdir /d/containers/6ee7: no such file or directory.",
            "on b: sudo ls -ld /d/containers; journalctl",
        ),
        (f"{DAEMON}stat /var/$(reboot)/x: no such file", "on b: docker info;"),
        ("OCI runtime create failed: open /proc/sys/x: permission denied", "on b: docker info;"),
    ],
)
def test_the_next_command_is_about_the_path_that_the_engine_named(words, command):
    assert docker_faults.hint(words, "b").startswith(command)
