"""For ranks that nobody looks at, `muster why` says why, and the agent calls none of them stuck."""

import json
import os
import subprocess
import sys
import time

import pytest

from lab.waiting import until
from tests.started import started
from trainer.node.ending import doing_now, rank_lives
from trainer.node.ending.rank_lives import Life
from trainer.node.hang import stuck_ranks


def said(folder, capsys, monkeypatch, **variables):
    """Return what `muster why` reports for rank 0, which it does not see itself, on a node with these variables."""
    outcome = folder / "nodes/.n0"
    outcome.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(outcome))
    rank_lives.note_begin(0, 7, {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "0", **variables})
    monkeypatch.setenv("MUSTER_RUN_DIR", str(folder))
    monkeypatch.setenv("MUSTER_NODE", "n0")
    assert doing_now.main() == 0
    return json.loads(capsys.readouterr().out)["doing"]


@pytest.mark.parametrize(("variables", "doing"), [({"MUSTER_OBSERVE": "0"}, "unobserved"), ({}, "unseen")])
def test_a_rank_that_is_not_observed_is_told_apart_from_one_that_does_not_answer(
    tmp_path, capsys, monkeypatch, variables, doing
):
    assert said(tmp_path, capsys, monkeypatch, **variables) == doing


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_rank_that_nobody_looks_at_is_never_called_stuck_however_idle_it_is(tmp_path, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    now = [1000.0]
    monkeypatch.setattr(stuck_ranks.time, "time", lambda: now[0])
    try:
        until(lambda: stuck_ranks._busy([process.pid]), "the process")
        monkeypatch.setattr(stuck_ranks.time, "monotonic", lambda: now[0])
        still, life = stuck_ranks.StuckRanks(tmp_path, None), Life(0, 0, 0, 1, process.pid, 1.0)
        for _ in range(60):
            now[0] += stuck_ranks.LOOK_SECONDS
            assert still.look([life]) == []
    finally:
        process.kill()
        process.wait()


def test_each_rank_that_a_command_started_is_reported_under_its_own_number(tmp_path, capsys, monkeypatch):
    """On the second node, `bash run.sh` starts ranks 2 and 3; the command itself had been reported as rank 1."""
    said(tmp_path, capsys, monkeypatch)
    look = {"t": time.time(), "doing": "", "since_s": 0.1}
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
        for local, process in enumerate(processes):
            about = {**look, "pid": process.pid, "step": 5 + local, "rank": 2 + local}
            (tmp_path / f"nodes/.n0/{local}.stacks").write_text(f"Look {json.dumps(about)}\n")
        assert doing_now.main() == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(each["rank"], each["step"]) for each in told] == [(2, 5), (3, 6)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def look_of(folder, pid, **more):
    about = {"t": time.time(), "doing": "", "since_s": 0.1, "pid": pid, "step": 7, **more}
    (folder / "nodes/.n0/0.stacks").write_text(f"Look {json.dumps(about)}\n")


def test_a_rank_is_reported_with_its_step_and_an_ended_one_with_its_code(tmp_path, capsys, monkeypatch):
    said(tmp_path, capsys, monkeypatch)
    look_of(tmp_path, 7)
    assert doing_now.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rank"], told["node"], told["step"], told["stack"]) == (0, "n0", 7, [])
    rank_lives.note_end(time.time(), 0, 7, 3)
    assert doing_now.main() == 0
    assert json.loads(capsys.readouterr().out) == {"rank": 0, "node": "n0", "doing": "ended", "code": 3}


def test_a_rank_that_has_made_no_step_has_made_none_since_it_began(tmp_path, capsys, monkeypatch):
    """The time since the last look had been shown, at most two seconds, beside the words `is stuck`."""
    said(tmp_path, capsys, monkeypatch)
    later = time.time() + 100
    monkeypatch.setattr(doing_now.time, "time", lambda: later)
    for step, least, most in ((0, 99, 101), (7, 0, 1)):
        look_of(tmp_path, 7, step=step)
        assert doing_now.main() == 0
        assert least <= json.loads(capsys.readouterr().out)["since_s"] <= most


def test_an_ended_rank_of_a_command_is_not_reported(tmp_path, capsys, monkeypatch):
    said(tmp_path, capsys, monkeypatch)
    with started(["true"]) as process:
        process.wait()
    look_of(tmp_path, process.pid, rank=5)
    assert doing_now.main() == 0
    assert json.loads(capsys.readouterr().out)["rank"] == 0


def test_a_host_without_a_node_gets_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("MUSTER_NODE", "n0")
    with pytest.raises(SystemExit, match="error: no node of a run is here"):
        doing_now.main()
