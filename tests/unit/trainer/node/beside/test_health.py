"""How the health check judges real run folders, and what a check costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.node.beside import health
from trainer.node.ending import reached_step

HOME = Path(__file__).resolve().parents[5]
START = 1_000_000.0


@pytest.fixture
def folder(tmp_path):
    """A run folder in which worker-1's agent started on host `here` at START."""
    for name in ("nodes", "ranks"):
        (tmp_path / name).mkdir()
    agent = {"node": "worker-1", "pid": 7, "host": "here", "t": START}
    (tmp_path / "nodes/worker-1.json").write_text(json.dumps(agent))
    return tmp_path


def say(folder, t, node="worker-1", rank=1):
    with (folder / f"ranks/rank-{rank}.jsonl").open("a") as file:
        file.write(json.dumps({"t": t, "kind": "step", "rank": rank, "node": node}) + "\n")


@pytest.mark.parametrize(("seconds", "reason"), [(119, ""), (121, "worker-1: no rank has started in 121 s")])
def test_a_node_may_take_two_minutes_to_start(folder, seconds, reason):
    assert health.stuck(folder, "here", START + seconds) == reason


@pytest.mark.parametrize(("silent", "reason"), [(299, ""), (301, "worker-1: no progress for 301 s")])
def test_silence_of_five_minutes_is_unhealthy(folder, silent, reason):
    say(folder, START + 1000)
    assert health.stuck(folder, "here", START + 1000 + silent) == reason


def test_another_nodes_progress_does_not_count_for_this_node(folder):
    say(folder, START + 10)
    say(folder, START + 2000, node="master", rank=0)
    assert health.stuck(folder, "here", START + 2001).startswith("worker-1: no progress")


def test_events_from_before_a_resume_are_not_progress(folder):
    say(folder, START - 5000)
    assert health.stuck(folder, "here", START + 60) == ""
    assert health.stuck(folder, "here", START + 130) == "worker-1: no rank has started in 130 s"


def test_a_line_cut_off_by_a_kill_is_skipped(folder):
    say(folder, START + 1000)
    with (folder / "ranks/rank-1.jsonl").open("a") as file:
        file.write('{"t": 1000')
    assert health.stuck(folder, "here", START + 1001) == ""


def test_a_long_file_is_read_from_its_end(folder, monkeypatch):
    monkeypatch.setattr(reached_step, "_TAIL_BYTES", 4096)
    for second in range(200):
        say(folder, START + second)
    assert (folder / "ranks/rank-1.jsonl").stat().st_size > 2 * 4096
    assert health.stuck(folder, "here", START + 200 + 200) == ""


def test_without_a_run_folder_a_living_agent_counts(tmp_path):
    assert health.missing_agent(tmp_path) == "no agent is running"
    (tmp_path / "12").mkdir()
    (tmp_path / "12/cmdline").write_bytes(b"python\0-m\0muster.trainer.node\0agent\0--steps\0005\0")
    assert health.missing_agent(tmp_path) == ""


def ask(environment):
    command = [sys.executable, "-X", "importtime", "-m", "muster.trainer.node", "health"]
    return subprocess.run(command, cwd=HOME, env={**os.environ, **environment}, capture_output=True, text=True)


def test_the_command_prints_one_line_and_exits_with_dockers_codes(folder):
    agent = {"node": "worker-1", "pid": 7, "host": os.uname().nodename, "t": time.time()}
    (folder / "nodes/worker-1.json").write_text(json.dumps(agent))
    healthy = ask({"MUSTER_RUN_DIR": str(folder)})
    assert (healthy.returncode, healthy.stdout) == (0, "healthy\n")
    (folder / "nodes/worker-1.json").write_text(json.dumps(agent | {"t": time.time() - 1000}))
    sick = ask({"MUSTER_RUN_DIR": str(folder)})
    assert sick.returncode == 1
    assert sick.stdout.startswith("worker-1: no rank has started in 100")


def test_a_health_check_imports_no_torch_and_few_modules(folder):
    lines = ask({"MUSTER_RUN_DIR": str(folder)}).stderr.splitlines()
    names = {line.split("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert {"json", "pathlib"} <= names, "the import log is not what this test reads"
    assert not {name for name in names if name.split(".")[0] in ("torch", "numpy")}
    assert len(names) < 100, "each module costs a part of the processor time of every look"
