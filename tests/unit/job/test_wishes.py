"""The settings of a cluster.toml that need no consent: a short list; the user is asked about any other."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job import wishes
from deploy.job.cluster import from_file
from deploy.job.consent import lines
from deploy.job.inventory import Host
from deploy.job.options import FREE, KEYS, Job
from deploy.job.values import Mount

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def lines_of(job, *hosts, folder):
    return lines(wishes.wishes(hosts, job, folder / "cluster.toml"))


@pytest.mark.holds("folder-asks")
def test_the_user_is_asked_about_a_setting_that_is_added_later(tmp_path):
    @dataclass(frozen=True)
    class LaterJob(Job):
        tunnel: str = ""

    @dataclass(frozen=True)
    class LaterHost(Host):
        sudo: bool = False

    assert lines_of(LaterJob(tunnel="evil"), folder=tmp_path) == ["tunnel evil"]
    assert lines_of(Job(), LaterHost("a", "a", sudo=True), folder=tmp_path) == ["host a at a", "sudo True on a"]


@pytest.mark.holds("folder-asks")
def test_the_free_settings_are_these_and_no_others(tmp_path):
    """Whoever adds a free setting must explain here why it stays within the containers of the run."""
    free = {
        *("script", "args", "folder", "requirements", "environment", "keep", "cache", "separate", "observe", "rank"),
        *("processes", "gpus", "shm_size", "memory", "pids", "restarts", "max_hours", "wait_lost", "min_nodes"),
        *("grace", "restart_with"),
        "folder_limit",
    }
    assert free == {key.name for key in KEYS.values() if key.asks == FREE}
    for name in (
        {entry.name for entry in fields(Job)} - free - {"env_file", "secrets", "include", "mounts", "roles", "data"}
    ):
        assert lines_of(replace(Job(), **{name: "x"}), folder=tmp_path), f"{name} is asked for"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("10.0.{}.7", "host as you at 10.0.*: h0, h1, h2, h3, h4, h5, h6, h7 and 32 more"),
        ("gpu-{}.lab.org", "host as you at *.lab.org: h0, h1, h2, h3, h4, h5, h6, h7 and 32 more"),
        ("gpu-{}", "host as you at names of their own: h0, h1, h2, h3, h4, h5, h6, h7 and 32 more"),
    ],
)
def test_many_hosts_share_a_line_for_each_network_and_another_place_has_its_own(tmp_path, address, shown):
    hosts = [Host(f"h{number}", address.format(number)) for number in range(40)]
    odd = Host("h40", "gpu-40.evil.example", user="x", gateway="door")
    root = Host("h41", address.format(41), user="root")
    assert lines_of(Job(), *hosts, odd, root, folder=tmp_path) == [
        shown,
        "host h40 at x@gpu-40.evil.example through door",
        f"host h41 at root@{address.format(41)}",
    ]


def test_the_example_asks_only_for_its_hosts_image_mount_and_secret():
    path = EXAMPLES / "cluster.toml"
    cluster = from_file(path)
    assert lines(wishes.wishes(cluster.hosts, cluster.job, path))[:6] == [
        "host gpu-a at ubuntu@10.0.0.4 through ubuntu@door.example.org",
        "host gpu-b at ubuntu@10.0.0.5 through ubuntu@door.example.org on eth1",
        "host gpu-c at gpu-c",
        "image muster-trainer:cpu",
        "mount /data:/data:ro on all hosts",
        "secret WANDB_API_KEY from this shell",
    ]


def test_the_user_is_asked_about_a_role_whose_script_is_outside_the_folder(tmp_path):
    """A role's command runs in the run's containers, like the script; its hosts are those of the file."""
    (tmp_path / "out.py").symlink_to("/etc/hostname")
    (tmp_path / "in.py").write_text("")
    assert not lines_of(replace(Job(), roles=("a=1:python in.py",)), folder=tmp_path)
    lines = lines_of(replace(Job(), roles=("a=1:python out.py", "b=1:python in.py")), folder=tmp_path)
    assert lines == ["role out.py leads to /etc/hostname"]


@pytest.mark.holds("folder-asks")
def test_the_user_is_asked_about_variables_that_engines_read_but_not_the_scripts(tmp_path):
    """A run's variables stay in its containers, but these decide which devices a container gets."""
    given = {"NVIDIA_VISIBLE_DEVICES": "all", "LR": "0.1"}
    assert lines_of(replace(Job(), environment=given), folder=tmp_path) == [
        "variable NVIDIA_VISIBLE_DEVICES=all, which the container engines on the hosts read"
    ]
    assert lines_of(Job(), Host("a", "a", environment=given), folder=tmp_path) == [
        "host a at a",
        "variable NVIDIA_VISIBLE_DEVICES=all on a, which its container engine reads",
    ]


@pytest.mark.holds("folder-asks")
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *(
            (f"{maker}_VISIBLE_DEVICES", True)
            for maker in ("AMD", "HABANA", "ASCEND", "MTHREADS", "CAMBRICON", "LATER")
        ),
        *((name, True) for name in ("ASCEND_RUNTIME_MOUNTS", "ASCEND_RUNTIME_OPTIONS", "ASCEND_VNPU_SPECS")),
        *((name, True) for name in ("NVIDIA_DRIVER_CAPABILITIES", "MTHREADS_DRIVER_CAPABILITIES", "NVIDIA_MIG_CONFIG")),
        *((name, True) for name in ("DOCKER_RESOURCE_GPU", "NVIDIA_IMEX_CHANNELS", "NVIDIA_REQUIRE_CUDA")),
        *((f"{name}_VISIBLE_DEVICES", False) for name in ("CUDA", "HIP", "ROCR", "ASCEND_RT")),
        *((name, False) for name in ("ASCEND_LAUNCH_BLOCKING", "AMD_LOG_LEVEL", "HABANA_LOGS", "VISIBLE_DEVICES")),
        ("NVIDIA_TF32_OVERRIDE", False),
    ],
)
def test_every_makers_container_runtime_is_asked_for_and_no_setting_of_a_script(tmp_path, name, asked):
    line = f"variable {name}=all, which the container engines on the hosts read"
    assert lines_of(replace(Job(), environment={name: "all"}), folder=tmp_path) == [line] * asked


@pytest.mark.holds("folder-asks")
def test_the_user_is_asked_about_sent_files_and_variables_and_include_stays_in_the_folder(tmp_path):
    (tmp_path / ".env").write_text("PASSED\nGIVEN=1\n")
    (tmp_path / "key.pem").write_text("x")
    job = replace(Job(), include=("key.pem",), env_file=(tmp_path / ".env",))
    assert lines_of(job, folder=tmp_path) == [
        "include key.pem is sent, even if it is a credential",
        f"variables of {tmp_path}/.env, with PASSED of this shell",
    ]
    (tmp_path / "out.pem").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match=r"out\.pem is a link out of the folder, to /etc/hostname"):
        lines_of(replace(job, include=("out.pem",)), folder=tmp_path)


@pytest.mark.holds("folder-asks")
def test_the_user_sees_how_a_mount_may_change_the_host(tmp_path):
    places = [Mount("/a", "/x", False), Mount("/b", "/x", True), Mount("/c", "/x", False, create=True)]
    assert lines_of(replace(Job(), mounts=tuple(places)), folder=tmp_path) == [
        "mount /a:/x on all hosts",
        "mount /b:/x:ro on all hosts",
        "mount /c:/x:create on all hosts",
    ]


def test_a_file_that_no_start_would_accept_can_still_be_asked_about(tmp_path):
    """A run that it started can be looked at and stopped, though a command or a file in it is broken meanwhile."""
    gone = tmp_path / "gone.env"
    job = replace(Job(), script="python 'train.py", roles=("a=1:python 'in.py",), env_file=(gone,))
    assert lines_of(job, folder=tmp_path) == [f"variables of {gone}, once it can be read"]


@pytest.mark.holds("folder-asks")
def test_a_folder_that_another_user_can_change_asks_for_its_free_settings_too(tmp_path, monkeypatch):
    job, host = replace(Job(), args="--lr 1", gpus="2", image="x"), Host("a", "10.0.0.1", gpus="1")
    assert {wish.shown() for wish in wishes.free_settings([host], job)} == {"args --lr 1", "gpus 2", "gpus 1 on a"}
    assert lines_of(job, host, folder=tmp_path) == ["host a at 10.0.0.1", "image x"]
    monkeypatch.setattr(wishes, "other_owner", lambda *_: "mallory")
    assert lines_of(job, host, folder=tmp_path) == [
        "host a at 10.0.0.1",
        "image x",
        "gpus 2",
        "args --lr 1",
        "gpus 1 on a",
        "owner mallory: this folder belongs to that user, who can change it at any moment",
    ]
