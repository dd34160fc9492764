"""What `muster bootstrap` decides for a host, from the host's own answer."""

import os
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

from deploy.core.errors import FAILED
from deploy.hosts import bootstrap, bootstrap_run
from deploy.hosts.bootstrap import Machine
from deploy.report.console import Console

READY = Machine(
    os="debian",
    release="12",
    user="ops",
    root=False,
    sudo=True,
    member=True,
    systemd=True,
    dockerd=True,
    client=True,
    answers=True,
    running=0,
    gpu=False,
    driver=False,
    toolkit=False,
    toolkit_package=False,
)
BARE = replace(READY, dockerd=False, client=False, answers=False, member=False)
GPU = replace(READY, gpu=True, driver=True)


def commands(machine):
    return [" ".join(step.argv) for step in bootstrap.decide(machine).steps]


def test_a_host_that_has_everything_is_left_alone():
    assert bootstrap.decide(READY) == bootstrap.Plan()
    assert bootstrap_run.plan_lines({"a": bootstrap.Plan()}) == ["a: has everything it needs"]


def test_a_login_with_a_rootless_engine_is_told_how_to_use_the_hosts_own():
    plan = bootstrap.decide(replace(READY, rootless=True))
    assert not plan.steps
    (words,) = plan.by_hand
    assert "docker context use default" in words
    assert bootstrap.parse("uid 1000\nuser ops\nrootless\n").rootless


def test_a_bare_host_gets_its_distributions_engine_and_the_right_to_use_it():
    made = commands(BARE)
    assert made[0] == "sudo -n apt-get update -q"
    assert "docker.io" in made[1]
    assert "iptables" in made[1]
    assert "docker-cli" not in made[1]
    assert made[2:] == ["sudo -n systemctl enable --now docker", "sudo -n usermod --append --groups docker ops"]


def test_root_needs_neither_sudo_nor_the_group():
    made = commands(replace(BARE, root=True, user="root"))
    assert not any("sudo" in command or "usermod" in command for command in made)


def test_the_separate_client_package_of_debian_13_is_installed():
    assert "docker-cli" in commands(replace(BARE, release="13"))[1]
    assert "docker-cli" in commands(replace(BARE, release=""))[1]
    assert "docker-cli" not in commands(replace(BARE, os="ubuntu", release="24.04"))[1]


def test_a_stopped_engine_is_started_and_nothing_is_installed():
    assert commands(replace(READY, answers=False, systemd=False)) == ["sudo -n service docker start"]


def test_a_host_without_sudo_gets_the_commands_to_run_by_hand():
    plan = bootstrap.decide(replace(BARE, sudo=False))
    assert not plan.steps
    assert "apt-get install" in plan.by_hand[0]
    assert "docker.io" in plan.by_hand[0]
    assert "sudo -n" not in plan.by_hand[0], "root needs none, and the host may not have it"


def test_another_system_is_not_touched():
    plan = bootstrap.decide(replace(BARE, os="fedora"))
    assert not plan.steps
    assert "fedora" in plan.by_hand[0]


def test_a_gpu_host_gets_the_toolkit_if_packaged_and_the_engine_is_restarted():
    made = commands(replace(GPU, toolkit_package=True))
    assert made[1].endswith("--no-install-recommends nvidia-container-toolkit")
    assert made[2] == "sudo -n systemctl restart docker"


def test_a_missing_toolkit_package_is_reported_and_the_engine_is_installed_anyway():
    plan = bootstrap.decide(replace(BARE, gpu=True, driver=True))
    assert any("docker.io" in step.argv for step in plan.steps)
    assert "do not have the package nvidia-container-toolkit" in plan.by_hand[0]


def test_running_containers_are_not_stopped_for_the_toolkit():
    plan = bootstrap.decide(replace(GPU, toolkit_package=True, running=3))
    assert not plan.steps
    assert "3 running containers" in plan.by_hand[0]


def test_a_gpu_without_a_driver_is_reported():
    assert "driver" in bootstrap.decide(replace(GPU, driver=False, toolkit=True)).by_hand[0]


def test_an_answer_is_parsed_even_if_it_is_short_or_empty():
    answer = "os ubuntu\nrelease 24.04\nuid 1000\nuser ops\nsudo\nsystemd\nclient\ndockerd\nanswers\nrunning 2\ngpu\n"
    machine = bootstrap.parse(answer)
    assert machine == replace(READY, os="ubuntu", release="24.04", member=False, running=2, gpu=True)
    assert bootstrap.parse("").os == ""


def test_only_hosts_whose_engine_was_asked_are_reported_as_ready(monkeypatch, capsys):
    """Nothing was installed on the other host: its owner must do what bootstrap cannot."""
    answers = {"gpu-a": "os fedora\n", "gpu-b": "os debian\nrelease 13\nsudo\nsystemd\nuser ops\n"}
    sessions = {
        name: SimpleNamespace(
            name=name,
            host=SimpleNamespace(name=name),
            run=lambda *words, out=out, **more: SimpleNamespace(out=out, code=0),
        )
        for name, out in answers.items()
    }
    opened = SimpleNamespace(all=lambda: sessions)
    monkeypatch.setattr(bootstrap_run, "open_all", lambda hosts: nullcontext(opened))
    monkeypatch.setattr(bootstrap_run.audit, "note", lambda *words: None)
    assert bootstrap_run.run([], None, False, Console()) == FAILED
    assert capsys.readouterr().err.splitlines()[-1] == "an engine answers on gpu-b"


def test_packages_are_found_on_a_host_with_another_language(tmp_path):
    """In German, `apt-cache` prints Installationskandidat: once, NVIDIA's toolkit package was not found."""
    for name, text in {
        "apt-cache": '[ "$LC_ALL" = C ] && echo "  Candidate: 1.17" || echo "  Installationskandidat: 1.17"',
        "docker": "exit 1",
        "sudo": "exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    words = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "de_DE.UTF-8"}
    done = subprocess.run(bootstrap.look(), capture_output=True, text=True, env=words, check=True)
    assert bootstrap.parse(done.stdout).toolkit_package
