"""A project's packages on two hosts of the rack, from the tests' own index, which requires a password."""

import json
import shlex

import pytest

from tests import index
from tests.cluster.control import BASE, Control

SCRIPT = """
import mine, plain, sourced, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("has", plain.VALUE, sourced.VALUE, mine.VALUE, flush=True)
dist.destroy_process_group()
"""
PROJECT = '[project]\nname = "mine"\nversion = "1"\n' + index._PROJECT.split("\n", 3)[3]
FILES = dict(
    [
        index.wheel("plain", "1.0", "VALUE = 'old'"),
        index.wheel("plain", "2.0", "VALUE = 'plain'", needs="torch>=2"),
        index.source("sourced", "1.0", "VALUE = 'sourced'", before="import torch\n"),
        index.wheel("evil", "1.0", "raise SystemExit('owned')"),
        index.source("broken", "1.0", "", before="raise SystemExit('no compiler: gcc was not found')\n"),
    ]
)
VOLUMES = "docker volume ls -q --filter label=muster.packages"
INSPECTED = "docker ps -aq | xargs -r docker inspect; docker volume ls -q | xargs docker volume inspect"


@pytest.fixture(scope="module")
def gateway(rack):
    return rack.on(rack.hosts[0], "ip route | awk '/^default/ {print $3}'")


@pytest.fixture
def project(tmp_path, rack, gateway):
    """A project with its own package, and the control side of a user who has the index's password."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "src/mine.py").write_text("VALUE = 'mine'\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    name, data = index.wheel("mine", "1", "")
    (folder / "backend.py").write_text(
        f"def build_wheel(folder, *_):\n    open(f'{{folder}}/{name}', 'wb').write({data!r})\n    return {name!r}\n"
    )
    (folder / "requirements.txt").write_text("# needs\nplain\nsourced==1.0\ntorch\n-e .\n")
    made = Control(rack)
    made.environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "UV_HTTP_RETRIES": "0"}
    made.project = folder
    with index.serve(gateway, FILES) as url:
        made.environment |= {"UV_DEFAULT_INDEX": url}
        yield made
    made.clean()
    for host in made.hosts:
        rack.on(host, f"{VOLUMES} | xargs -r docker volume rm")


def deploy(project, *words):
    return project.deploy("--folder", str(project.project), "--script", "train.py", *words)


def push(project, *words):
    return project.fab("push", "--image", BASE, "--folder", str(project.project), *words)


def volumes(project):
    return {host: project.rack.on(host, VOLUMES).split() for host in project.hosts}


@pytest.mark.holds("index-passwords")
def test_packages_reach_all_hosts_and_need_no_index_the_second_time(project):
    done = deploy(project)
    assert done.returncode == 0, done.stderr
    assert "on each of 2 hosts, the same files" in done.stderr
    assert "has plain sourced mine" in done.stdout
    for host in project.hosts:
        assert "sesame-4715" not in project.rack.on(host, INSPECTED)
    project.clean()
    (project.project / "src/mine.py").write_text("VALUE = 'changed'\n")
    project.environment["UV_DEFAULT_INDEX"] = project.environment["UV_DEFAULT_INDEX"].replace("sesame", "wrong")
    done = deploy(project)
    assert done.returncode == 0, done.stderr
    assert "has plain sourced changed" in done.stdout


def test_a_failed_install_is_reported_in_uvs_words_and_the_old_packages_stay(project):
    assert push(project).returncode == 0
    before = volumes(project)
    assert all(before.values())
    for line, words in (
        ("torch==1.0", "requirements.txt:2: `torch==1.0` excludes torch"),
        ("plain==3.0", "plain==3.0"),
        ("broken", "gcc was not found"),
    ):
        (project.project / "requirements.txt").write_text(f"plain\n{line}\n")
        done = push(project)
        assert done.returncode == 1
        assert words in done.stderr
        assert "sesame" not in done.stdout + done.stderr
        assert volumes(project) == before


def test_a_host_that_cannot_reach_the_index_gets_its_packages_from_this_machine(project):
    port = project.environment["UV_DEFAULT_INDEX"].split("/")[2].rpartition(":")[2]
    rule = ["OUTPUT", "-p", "tcp", "--dport", port, "-j", "REJECT"]
    project.rack.root(project.hosts[1], "iptables", "-I", *rule)
    try:
        done = deploy(project)
        assert done.returncode == 0, done.stderr
        assert "has plain sourced mine" in done.stdout
        assert all(volumes(project).values())
    finally:
        project.rack.root(project.hosts[1], "iptables", "-D", *rule)


# A hostile host's `docker`: it answers one order itself, for example that a build needs another package.
LIES = """#!/bin/sh
case " $* " in *" muster.packages=ORDER "*)
    [ ORDER = describe ] || key=$(grep -a -o -m1 '"key": "[0-9a-f]*"' | cut -d '"' -f 4)
    echo 'ANSWER' | sed "s/KEY/$key/"; cat >/dev/null; exit 0 ;;
esac
exec /usr/bin/docker "$@"
"""
DESCRIBED = {"python": "3.11.2", "platform": {"machine": "x86_64", "libc": ["glibc", "2.36"]}}
BASE_LIE = {**DESCRIBED, "base": [{"name": "torch", "version": "2.13.0+cpu", "requires": ["evil"], "extras": []}]}
BUILD_LIE = {"key": "KEY", "wheel": "odd-1.0-py3-none-any.whl", "sha256": "0" * 64, "name": "odd", "version": "1.0"}
BUILD_LIE |= {"requires": [], "extras": []}
DYNAMIC = index._PROJECT.format(name="odd", version="1.0").replace('version = "1.0"', 'dynamic = ["version"]')


@pytest.mark.holds("nobody-decides")
@pytest.mark.parametrize(
    ("order", "answer", "words"),
    [
        ("describe", BASE_LIE, "the image's packages differ from those on"),
        ("build", {"built": [{**BUILD_LIE, "requires": ["evil"]}]}, "its build of libs/odd needs something other"),
        ("build", {"built": [BUILD_LIE]}, ": odd-1.0-py3-none-any.whl: it is not what was built"),
    ],
)
def test_a_hostile_first_host_decides_nothing_for_the_others(project, order, answer, words):
    rack, first = project.rack, project.hosts[0]
    folder = project.project / "libs/odd"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(DYNAMIC)
    (folder / "backend.py").write_text(index._BACKEND.format(name="odd", version="1.0", code="", wheel=index._WHEEL))
    (project.project / "requirements.txt").write_text("plain\n./libs/odd\n")
    text = LIES.replace("ORDER", order).replace("ANSWER", json.dumps({"done": answer}))
    rack.root(
        first, "sh", "-c", f"printf %s {shlex.quote(text)} > /usr/local/bin/docker; chmod +x /usr/local/bin/docker"
    )
    try:
        done = push(project)
        assert done.returncode == 1
        assert words in done.stderr
        assert not volumes(project)[first]
    finally:
        rack.root(first, "rm", "/usr/local/bin/docker")
    done = push(project)
    assert done.returncode == 0, done.stderr
    for host in project.hosts:
        look = f"docker run --rm -v $({VOLUMES}):/p --entrypoint ls $(docker images -q | head -1)"
        found = rack.on(host, f"{look} /p/lib/python3.11/site-packages")
        assert "plain.py" in found
        assert "evil" not in found


def test_requirements_no_installs_nothing(project):
    assert push(project, "--requirements", "no").returncode == 0
    assert not any(volumes(project).values())
