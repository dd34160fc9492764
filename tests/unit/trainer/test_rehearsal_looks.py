"""What a rehearsal looks at when it fails, so that the error message alone decides nothing."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from deploy.causes.rehearsal_faults import sign_of
from deploy.preflight import probe_answers
from lab.waiting import until
from trainer.node.probe import rehearsal
from trainer.node.probe.rehearsal import counted, looked_at


def test_a_write_that_fails_is_reported_with_the_folders_room_owner_and_mode(tmp_path):
    tmp_path.chmod(0o750)
    seen, told = looked_at("write", str(tmp_path), "PermissionError: [Errno 1] Operation not permitted")
    assert seen == []
    assert told.startswith(f" [{tmp_path}; ")
    assert " MB free" in told
    assert "mode 750, this is uid" in told
    assert "mounted read-only" not in told


def test_a_loader_that_runs_out_of_memory_is_reported_with_the_room_in_shared_memory():
    assert "/dev/shm: " in looked_at("load", "", "RuntimeError: Bus error")[1]
    assert "/dev/shm: " in looked_at("load", "", "", signal.SIGBUS)[1]


def test_what_was_seen_is_reported_as_facts_for_programs_beside_its_words(tmp_path, monkeypatch):
    full = SimpleNamespace(f_bavail=0, f_frsize=4096, f_blocks=9, f_files=10, f_favail=0, f_flag=os.ST_RDONLY)
    monkeypatch.setattr(rehearsal.os, "statvfs", lambda path: full)
    monkeypatch.setattr(rehearsal.os, "access", lambda path, mode: False)
    seen, told = looked_at("write", str(tmp_path), "OSError: [Errno 28] No space left on device")
    assert seen == ["disk_full", "no_inodes", "read_only", "no_right"]
    assert "; 0 MB free; 0 inodes free; of uid " in told
    assert told.endswith("; mounted read-only; no right to write there]")
    assert looked_at("load", "", "", signal.SIGBUS)[0] == ["shm_full"]


def test_errors_that_need_no_look_and_missing_files_add_nothing(tmp_path):
    assert looked_at("meet", "", "OSError: Address already in use") == ([], "")
    assert looked_at("write", f"{tmp_path}/gone", "FileNotFoundError") == ([], "")
    assert counted("no-such-file", "no-such-file-either", "oom_kill", "%s times") == []


def test_a_folder_that_the_engine_does_not_see_is_reported_as_a_fact(tmp_path):
    """What the step reports is what preflight decides by."""
    said = []
    plan = {"folder": str(tmp_path), "expect": "gone", "backend": "gloo"}
    rehearsal.Rank(plan, 0, said.append, None).run()
    answer = {"phase": "alone", "torch": "", "ranks": [{"local": 0, **said[-2], **json.loads(json.dumps(said[-1]))}]}
    (rank,) = probe_answers.read("rehearsal", answer)["ranks"]
    sign = sign_of(rank["error"], rank["at"], rank["seen"])
    assert sign.cause == "mount-missing"
    assert sign.proved_by(rank["error"], rank["seen"])


def test_garbage_collection_is_off_while_torch_is_imported(tmp_path):
    """Garbage collection would take a sixth of the import's time, on each host."""
    (tmp_path / "torch.py").write_text("import gc\nraise ImportError(f'it is looked for: {gc.isenabled()}')\n")
    code = "from trainer.node.probe import rehearsal; print(*rehearsal.rehearse({}, None))"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    line = [sys.executable, "-P", "-c", code]
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert "it is looked for: False" in done.stdout, done.stderr


@pytest.mark.torch
def test_a_rank_that_is_killed_between_the_phases_is_reported_with_its_signal(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_RUN_DIR", str(tmp_path))
    ranks, fork = [], os.fork

    def counting_fork():
        ranks.append(fork())
        return ranks[-1]

    def kill():
        os.kill(ranks[0], signal.SIGKILL)
        until(lambda: os.waitid(os.P_PID, ranks[0], os.WEXITED | os.WNOWAIT), "its end")
        return True

    monkeypatch.setattr(rehearsal.Rank, "alone", lambda rank: None)
    monkeypatch.setattr(rehearsal.os, "fork", counting_fork)
    _, together = rehearsal.rehearse({"backend": "gloo"}, kill)
    (rank,) = together["ranks"]
    assert rank["signal"] == signal.SIGKILL
