"""Which hosts are bare, and which commands may install the program that runs their nodes as processes."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed
from deploy.engine import install_bare
from deploy.host import commands
from deploy.host import facts as host_facts
from deploy.hosts import bootstrap
from deploy.hosts.node import bare_engine
from deploy.hosts.start import observe
from deploy.send.packages import uv

NO_ENGINE = "no-engine\nengine-error docker: not found in PATH (/usr/bin)\n"
DOWN = (
    "engine-error Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"
)


@pytest.fixture
def brought(monkeypatch):
    """The names of the hosts that got the program."""
    names = []
    monkeypatch.setattr(install_bare, "install", lambda session, *_: names.append(session.name))
    return names


def hosts(**answers):
    def host(name, out):
        asked = SimpleNamespace(gpus="auto", destination=f"me@{name}:2222")
        return SimpleNamespace(name=name, host=asked, run=lambda words: SimpleNamespace(out=out))

    return [host(name, out) for name, out in answers.items()]


def test_a_dry_run_installs_nothing_and_names_the_command_that_does(brought):
    with pytest.raises(HostsFailed, match="a dry run sends nothing") as failed:
        observe.facts(hosts(a=NO_ENGINE), bring=True, may_write=False).all()
    assert "muster preflight --hosts me@a:2222" in failed.value.hint
    assert brought == []


def test_a_host_without_an_engine_gets_nothing_if_another_host_has_one(brought):
    faults = observe.facts(hosts(a=NO_ENGINE, b=DOWN), bring=True).faults
    assert faults["a"].cause.name == "docker-missing"
    assert faults["a"].message.endswith(", but other hosts of this run have an engine")
    assert faults["b"].cause.name == "docker-down"
    assert brought == []


def test_if_no_host_has_an_engine_each_gets_the_program(brought):
    observe.facts(hosts(a=NO_ENGINE, b=NO_ENGINE), bring=True)
    assert sorted(brought) == ["a", "b"]


OWN = ".muster/bin/docker"


@pytest.fixture
def place(tmp_path):
    """place(PROGRAM): a command's environment on a host where Muster's own engine starts PROGRAM."""

    def made(program):
        engine, tools = tmp_path / "home" / OWN, tmp_path / "tools"
        engine.parent.mkdir(parents=True)
        engine.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        engine.chmod(0o700)
        tools.mkdir()
        for name in (
            "sh",
            "awk",
            "cat",
            "cut",
            "date",
            "df",
            "find",
            "grep",
            "head",
            "id",
            "sed",
            "tail",
            "tr",
            "uname",
            "wc",
        ):
            (tools / name).symlink_to(shutil.which(name))
        # PATH in the order in which door/framing.py sets it for each command.
        return {"HOME": f"{tmp_path}/home", "PATH": f"{tools}:{engine.parent}"}

    return made


@pytest.mark.long
def test_a_host_whose_bare_engine_has_lost_its_python_counts_as_bare_again(place):
    """As when a rented host comes back with its disk but with another image."""
    look = subprocess.run(commands.look(), env=place("/opt/conda/bin/python3.11"), capture_output=True, text=True)
    assert host_facts.is_bare(look.stdout)


@pytest.mark.long
def test_bootstrap_does_not_take_musters_own_engine_for_docker(place):
    look = subprocess.run(bootstrap.look(), env=place("/bin/true"), capture_output=True, text=True)
    machine = bootstrap.parse(look.stdout)
    assert (machine.client, machine.answers) == (False, False)


@pytest.fixture
def pythons(monkeypatch):
    """Records which hosts got a Python, and from which archive; `pythons.failed`: the error that a host reports."""
    got = SimpleNamespace(hosts={}, failed="")
    monkeypatch.setattr(bare_engine.audit, "note", lambda *_: None)
    monkeypatch.setattr(
        install_bare,
        "install_python",
        lambda session, own, archive: got.hosts.update({session.name: archive}) or got.failed,
    )
    monkeypatch.setattr(uv, "python_for", lambda machine, *_: f"Python for {machine}".encode())
    return got


def test_a_host_with_an_old_python_gets_one_from_this_machine(monkeypatch, brought, pythons):
    lacks = iter([install_bare.LackingHost("aarch64", "Python 3.8.18"), None])
    monkeypatch.setattr(install_bare, "install", lambda *_: next(lacks))
    observe.facts(hosts(a=NO_ENGINE), bring=True)
    assert pythons.hosts == {"a": b"Python for aarch64"}


def nothing(*_):
    raise DeployError("no route to it")


def test_if_no_python_can_be_fetched_the_host_is_refused_with_what_to_type(monkeypatch, brought, pythons):
    monkeypatch.setattr(install_bare, "install", lambda *_: install_bare.LackingHost("x86_64", "Python 3.8.18"))
    monkeypatch.setattr(uv, "python_for", nothing)
    monkeypatch.setattr(uv, "python_getter", lambda *_: b"uv")
    pythons.failed = "dns error"
    fault = observe.facts(hosts(a=NO_ENGINE), bring=True).faults["a"]
    assert "only Python 3.8.18" in fault.message
    assert "this machine: no route to it; a: dns error" in fault.message
    assert "apt-get install python3 (3.11 or later)" in fault.hint
    monkeypatch.setattr(uv, "python_getter", nothing)
    words = observe.facts(hosts(a=NO_ENGINE), bring=True).faults["a"].message
    assert words.endswith("cannot be installed: this machine: no route to it")


def test_hosts_with_different_pythons_all_get_the_same_one(monkeypatch, brought, pythons):
    monkeypatch.setattr(install_bare, "python_of", lambda version: version.rpartition("-")[2])
    lacks = install_bare.LackingHost("x86_64", "")
    monkeypatch.setattr(
        install_bare, "install", lambda session, own, same: lacks if same else brought.append(session.name)
    )
    of = {"a": "3.11.2", "b": "3.13.1", "c": uv.PYTHON}
    answers = {host: f"no-engine\nbare bare-d-{python}\n" for host, python in of.items()}
    observe.facts(hosts(**answers), bring=True)
    assert sorted(pythons.hosts) == sorted(brought) == ["a", "b"]
