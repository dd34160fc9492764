"""A project's packages on two hosts of the rack, from an index of our own that wants a password."""

import subprocess

import pytest

from lab import index
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
    """A project with a package of its own, and the control side of a user who has the index's password."""
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
def test_packages_are_there_on_all_hosts_and_the_second_time_without_an_index(project):
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


def test_what_cannot_be_installed_is_told_in_uvs_words_and_what_was_there_stays(project):
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


def test_a_host_without_a_way_to_the_index_gets_the_files_of_one_that_has_it(project):
    port = project.environment["UV_DEFAULT_INDEX"].split("/")[2].rpartition(":")[2]
    rule = ["OUTPUT", "-p", "tcp", "--dport", port, "-j", "REJECT"]
    project.rack.root(project.hosts[1], "iptables", "-I", *rule)
    try:
        done = deploy(project)
        assert done.returncode == 0, done.stderr
        assert "has plain sourced mine" in done.stdout
        assert all(volumes(project).values())
        for host in project.hosts:
            project.rack.on(host, f"{VOLUMES} | xargs docker volume rm")
        project.rack.root(project.hosts[0], "iptables", "-I", *rule)
        project.environment["XDG_CACHE_HOME"] += "-new"
        done = push(project)  # now this machine is the only one that reaches it
        project.rack.root(project.hosts[0], "iptables", "-D", *rule)
        assert done.returncode == 0, done.stderr
        assert all(volumes(project).values())
    finally:
        project.rack.root(project.hosts[1], "iptables", "-D", *rule)
        subprocess.run(f"{VOLUMES} | xargs -r docker volume rm", shell=True, capture_output=True, check=False)


def test_no_means_no(project):
    assert push(project, "--requirements", "no").returncode == 0
    assert not any(volumes(project).values())
