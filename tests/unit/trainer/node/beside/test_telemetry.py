"""A process next to the agent records what the node's machine does. A fake library plays the GPUs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.run import events
from lab import waiting
from tests.started import started
from trainer.node import processes
from trainer.node.beside import nvml, telemetry
from trainer.node.beside.meters import Meters

# These tests start programs.
pytestmark = pytest.mark.long

SOURCE = Path(__file__).with_name("fake_nvml.c")
KIB = 1024


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    """The folder of a library that answers like NVIDIA's for two GPUs that do not exist."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("fake") / nvml.LIBRARY
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(SOURCE)], check=True)
    return library


def test_the_fake_gpus_are_read_and_a_value_that_one_does_not_report_is_left_out(fake, monkeypatch):
    monkeypatch.setattr(nvml, "LIBRARY", str(fake))
    gpus = telemetry.Gpus({})
    first, second = gpus.read()["gpus"]
    assert first == {
        "name": "Fake GPU",
        "index": 0,
        "use_percent": 90,
        "memory_bytes": 60 << 30,
        "memory_total_bytes": 80 << 30,
        "power_w": 654.3,
        "celsius": 70,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "throttled": ["heat (hardware)"],
    }
    assert second["use_percent"] == 91
    assert (second["memory_bytes"], "power_w" in second) == (61 << 30, False)
    assert gpus.driver == "1.2.3"


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("1", [1]), ("GPU-fake-0", [0]), ("", []), ("1,0", [0, 1]), ("MIG-fake", [1]), ("MIG-gone", []), ("-1", [])],
)
def test_a_node_that_has_only_some_gpus_reports_only_these(fake, monkeypatch, visible, indices):
    monkeypatch.setattr(nvml, "LIBRARY", str(fake))
    assert list(telemetry.Gpus({"CUDA_VISIBLE_DEVICES": visible}).names) == indices


@pytest.mark.parametrize(("broken", "why"), [(True, "version mismatch"), (False, "capability utility")])
def test_the_reason_why_existing_gpus_cannot_be_seen_is_reported(fake, monkeypatch, tmp_path, broken, why):
    monkeypatch.setenv("FAKE_NVML_BROKEN", "1")
    monkeypatch.setattr(nvml, "LIBRARY", str(fake) if broken else str(tmp_path / "none.so"))
    assert telemetry.Gpus({}).read() == {}
    monkeypatch.setattr(telemetry, "_DEVICE", tmp_path)
    assert why in telemetry.Gpus({}).read()["gpu_unseen"]


@pytest.fixture
def machine(tmp_path):
    """Files that play the /proc and /sys of a machine with 16 GB; returns the function that writes more of them."""

    def tree(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    devices = ("lo: 5 0 0 0 0 0 0 0 5 0", "eth0: 1000 0 0 0 0 0 0 0 2000 0", "veth1: 9 0 0 0 0 0 0 0 9 0")
    tree(
        {
            "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 10000000 kB\n",
            "proc/stat": "cpu 100 0 100 900 100 0 0 0 0 0\n",
            "proc/net/dev": "\n".join(("Inter-| Receive", " face |bytes", *devices)),
            "sys/class/net/eth0/device/vendor": "0x1",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "100",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "200",
        }
    )
    return tree


def test_without_a_cgroup_of_its_own_a_node_has_the_machines_numbers(machine, tmp_path):
    root = machine({"proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n"})
    meters = Meters(tmp_path, "", root)
    first = meters.read(100.0)
    assert first["memory_bytes"] == 6_000_000 * KIB
    assert first["memory_limit_bytes"] == 16_000_000 * KIB
    assert first["disk_free_bytes"] > 0
    assert "cpu_percent" not in first
    machine({"proc/net/dev": "\n\neth0: 3000 0 0 0 0 0 0 0 2500 0\n"})
    ticks = os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
    machine({"proc/stat": f"cpu {100 + ticks} 0 100 900 100 0 0 0 0 0\n"})
    second = meters.read(102.0)
    assert second["cpu_percent"] == 50.0
    assert second["network"] == {"eth0": [1000, 250], "mlx5_0": [0, 0]}


@pytest.mark.parametrize("kind", ["v2", "v2 of the host", "v1", "v1 of the host"])
def test_a_container_with_a_limit_has_its_own_numbers(machine, tmp_path, kind):
    inside = "" if "host" in kind else "docker/abc/"
    named = "/" if kind == "v2" else "/docker/abc"
    if kind.startswith("v2"):
        base = f"sys/fs/cgroup/{inside if kind == 'v2 of the host' else ''}"
        root = machine(
            {
                "proc/self/cgroup": f"0::{named}\n",
                f"{base}memory.max": "4000000\n",
                f"{base}memory.current": "3000000\n",
                f"{base}memory.stat": "anon 5\ninactive_file 1000000\n",
                f"{base}cpu.stat": "usage_usec 5000000\n",
            }
        )
        more = {f"{base}cpu.stat": "usage_usec 6000000\n"}
    else:
        root = machine(
            {
                "proc/self/cgroup": f"4:memory:{named}\n2:cpu,cpuacct:{named}\n",
                f"sys/fs/cgroup/memory/{inside}memory.limit_in_bytes": "4000000\n",
                f"sys/fs/cgroup/memory/{inside}memory.usage_in_bytes": "3000000\n",
                f"sys/fs/cgroup/memory/{inside}memory.stat": "total_inactive_file 1000000\n",
                f"sys/fs/cgroup/cpuacct/{inside}cpuacct.usage": "5000000000\n",
            }
        )
        more = {f"sys/fs/cgroup/cpuacct/{inside}cpuacct.usage": "6000000000\n"}
    meters = Meters(tmp_path, "lo", root)
    first = meters.read(10.0)
    assert (first["memory_bytes"], first["memory_limit_bytes"]) == (2_000_000, 4_000_000)
    machine(more)
    second = meters.read(11.0)
    assert second["cpu_percent"] == round(100.0 / second["cores"], 1)
    assert next(iter(second["network"])) == "lo"


def test_telemetry_lines_are_written_as_the_control_side_reads_them(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake.parent))
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("MUSTER_SECRET_NAMES", "MUSTER_TOKEN")
    monkeypatch.setenv("MUSTER_TOKEN", "hunter2")
    lines = tmp_path / "telemetry/a.jsonl"
    with telemetry.run_telemetry(tmp_path, "a", packages=True):
        waiting.until(lambda: lines.exists() and lines.read_text().count("\n"), "a line", 30)
    event = events.of_telemetry(json.loads(lines.read_text().splitlines()[0]), 0.0)
    assert event["node"] == "a"
    assert [gpu["index"] for gpu in event["gpus"]] == [0, 1]
    about = json.loads((tmp_path / "environment.json").read_text())
    assert about["packages"]["pytest"] == pytest.__version__
    assert about["gpu"] == "Fake GPU"
    assert "hunter2" not in (tmp_path / "environment.json").read_text()
    written = lines.read_text()
    assert not running(tmp_path), "it ends with what it stands beside"
    assert lines.read_text() == written


def running(folder):
    """Return the processes that write telemetry for this run folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        if b"\0telemetry\0" in command and f"MUSTER_RUN_DIR={folder}".encode() in variables.split(b"\0"):
            found.append(int(process.name))
    return found


def test_telemetry_does_not_outlive_a_killed_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    agent = os.fork()
    if not agent:
        with telemetry.run_telemetry(tmp_path, "a", packages=False):
            time.sleep(60)
        os._exit(0)
    waiting.until(lambda: running(tmp_path), "the process", 20)
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    waiting.until(lambda: not running(tmp_path), "its end", 20)


def test_a_short_run_has_a_few_lines_and_a_week_not_too_many():
    def lines(seconds):
        count, now = 0, 0.0
        while (now := now + telemetry.pause_s(now)) <= seconds:
            count += 1
        return count

    assert 3 <= lines(6) <= 6
    assert 110 <= lines(600) <= 130
    assert lines(7 * 86400) < 20_000


@pytest.mark.parametrize("reason", ["no run folder", "switched off", "no such Python"])
def test_no_telemetry_runs_where_it_is_switched_off_or_impossible(tmp_path, monkeypatch, reason):
    monkeypatch.setenv("MUSTER_OBSERVE", "0" if reason == "switched off" else "1")
    if reason == "no such Python":
        monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with telemetry.run_telemetry(None if reason == "no run folder" else tmp_path, "a", packages=False):
        assert not running(tmp_path)


def test_the_key_that_the_nodes_share_is_not_recorded():
    told = telemetry.environment({"MUSTER_SHARE_KEY": "sesame", "MUSTER_NODE": "a"}, telemetry.Gpus({}))
    assert told["variables"] == {"MUSTER_NODE": "a"}


def test_the_record_has_the_package_that_python_imports_of_two_with_one_name(tmp_path, monkeypatch):
    for place, version in (("first", "2.14.1"), ("second", "2.13.0+cpu")):
        (tmp_path / place / f"torch-{version}.dist-info").mkdir(parents=True)
        (tmp_path / place / f"torch-{version}.dist-info/METADATA").write_text(f"Name: torch\nVersion: {version}\n")
    (tmp_path / "first/Old-1.0.dist-info").mkdir()
    (tmp_path / "first/Old-1.0.dist-info/METADATA").write_bytes(b"Name: Old\nVersion: 1.0\nAuthor: J\xf6rg\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "first"), str(tmp_path / "second")])
    found_here = telemetry.environment({}, telemetry.Gpus({}))
    assert (found_here["torch"], found_here["packages"]) == ("2.14.1", {"torch": "2.14.1"})


def test_an_agent_stopped_by_a_signal_is_reported_and_woken():
    torchrun = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with started([sys.executable, "-c", torchrun], stdin=subprocess.PIPE) as agent:
        wakes = telemetry.Wakes(agent.pid)
        (child,) = waiting.until(lambda: [pid for pid in wakes._processes() if pid != agent.pid], "its child")
        assert (wakes.look(0.0), wakes.news) == ({}, False)
        for pid, words in ((agent.pid, "its agent"), (child, "its torchrun")):
            os.kill(pid, signal.SIGSTOP)
            waiting.until(lambda pid=pid: processes.state_of(pid) == "T", "the stop")
            assert wakes.look(1.0) == {}, "a moment is no stop"
            assert wakes.look(2.0)["halted"].startswith(f"{words} is stopped by a signal (SIGSTOP)")
            assert wakes.news
            wakes.look(1.0 + telemetry.WOKEN_S)
            waiting.until(lambda pid=pid: processes.state_of(pid) != "T", "it to go on")
            assert wakes.look(99.0) == {}
        agent.communicate(b"\n")
