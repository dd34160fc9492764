"""gpu-check on a machine without a GPU: the same code paths with gloo, and what gpu-check promises about itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpu_check import network, processes
from gpu_check.finding import MET, NOT_MET, NOT_TRIED
from gpu_check.schedule import Schedule
from lab.waiting import alive, until
from tests.dist.conftest import HOME

HANGS = "tests.dist.gpu_check_that_hangs"


@pytest.fixture
def temporary():
    """A folder for temporary files with a short path, since sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="gc-") as folder:
        yield Path(folder)


def started(path, temporary, *options, **variables):
    """Start `python -m gpu_check` without a GPU."""
    command = [sys.executable, "-m", "gpu_check", "--json", str(path), *options]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(temporary), **variables}
    return subprocess.Popen(
        command, cwd=HOME, env=hidden, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_without_a_gpu_the_same_checks_run_on_the_cpu_and_pass(tmp_path, temporary):
    file = tmp_path / "gpu-check.json"
    only = "facts,hosts,kill,forked,checkpoint,memory,several,telemetry,orphans"
    run = started(file, temporary, "--only", only, "--seconds", "300")
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, out + err
    report = json.loads(file.read_text())
    states = {finding["what"]: finding for check in report["checks"] for finding in check["findings"]}
    assert not [what for what, finding in states.items() if finding["state"] == NOT_MET]
    for what in (
        "3 hosts: rendezvous, all_reduce",
        "3 hosts: interface",
        "killed: training goes on",
        "killed: weights beside a run left alone",
        "a DataLoader with workers and pinned memory",
        "weights, optimizer, scaler",
        "2 ranks: all_reduce",
        "processes of the checks",
    ):
        assert states[what]["state"] == MET
    assert states["everything on GPUs"]["state"] == NOT_TRIED
    ranks = states["3 hosts: rendezvous, all_reduce"]["values"]["ranks"]
    assert [(rank["rank"], rank["world"], rank["backend"]) for rank in ranks] == [(n, 3, "gloo") for n in range(3)]
    assert states["killed: training goes on"]["values"]["seconds"] > 0
    assert list(temporary.iterdir()) == [], "what was met leaves nothing but its JSON"
    assert "link (" in out.partition("left out: ")[2]
    for check in report["checks"]:
        assert f"] {check['check']}: {check['title']}" in err, "each check says that it runs"


def test_sharded_models_train_on_the_cpu_as_one_process_does(tmp_path, temporary):
    file = tmp_path / "gpu-check.json"
    run = started(file, temporary, "--only", "mesh")
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, out + err
    (check,) = json.loads(file.read_text())["checks"]
    states = {finding["what"]: finding["state"] for finding in check["findings"]}
    assert [what for what, state in states.items() if state == MET] == [
        "FSDP2, a rank killed: training goes on",
        "FSDP2 on 2 ranks",
        "tensor parallel on 2 ranks",
        "FSDP2, a rank killed",
        "pipeline of 2 ranks",
        "FSDP2's checkpoint continues in one process",
        "FSDP2's checkpoint continues with tensor parallel",
    ]
    assert states["FSDP2: peak memory beside DDP"] == NOT_TRIED


def test_a_check_that_hangs_is_killed_with_its_children_and_the_next_one_runs(tmp_path):
    (tmp_path / "machine.json").write_text(json.dumps({"torch": {"gpus": []}, "packages": {}}))
    hung, after = Schedule(tmp_path, 60.0, lambda _: None).run([HANGS, "orphans"])
    begun, late = hung.findings
    assert (begun.state, late.state) == (MET, NOT_MET)
    assert "killed after its limit" in late.measured
    assert not alive(int(begun.measured))
    assert not alive(begun.values["own"])
    assert [finding.state for finding in after.findings] == [MET, NOT_TRIED]


def test_a_check_that_does_not_fit_into_the_time_is_named_and_not_started(tmp_path):
    (late,) = Schedule(tmp_path, 0.0, lambda _: None).run(["hosts"])
    assert [finding.state for finding in late.findings] == [NOT_TRIED]
    assert not (tmp_path / "hosts").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_processes_and_reports_what_was_found(tmp_path, temporary, number):
    file = tmp_path / "gpu-check.json"
    run = started(file, temporary, "--only", "facts,kill")
    [folder] = until(lambda: [*temporary.glob("gpu-check-*/kill/killed/ranks")], "the ranks' folder", 60)
    label = str(folder.parents[1])
    until(lambda: len(processes.labelled(processes.LABEL, label)) > 4, "agents and ranks", 60)
    os.kill(run.pid, number)
    out, _ = run.communicate(timeout=30)
    assert run.returncode == 130
    assert not processes.labelled(processes.LABEL, label)
    assert "it was interrupted" in out
    assert [check["check"] for check in json.loads(file.read_text())["checks"]] == ["facts", "kill"]


def test_a_python_without_torch_is_refused_with_the_reason(tmp_path, temporary):
    file = tmp_path / "gpu-check.json"
    hidden = tmp_path / "torch.py"
    hidden.write_text("raise ImportError('libcudart is missing')")
    run = started(file, temporary, PYTHONPATH=str(tmp_path))
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "libcudart is missing" in err
    assert not file.exists()


def test_a_cut_link_silently_drops_all_packets_until_it_is_mended():
    if network.why_not_allowed():
        pytest.skip(network.why_not_allowed())
    with network.separate_hosts(2) as net:
        first, other = net.places
        answer = f"import socket; s = socket.create_server(('{other.address}', 9), backlog=9); print(1, flush=True)"
        server = subprocess.Popen(
            [sys.executable, "-c", f"{answer}; s.accept(); s.accept()"], preexec_fn=other.enter, stdout=subprocess.PIPE
        )

        def reaches():
            ask = f"import socket; socket.create_connection(('{other.address}', 9), 1.5)"
            return (
                subprocess.run([sys.executable, "-c", ask], preexec_fn=first.enter, capture_output=True).returncode == 0
            )

        try:
            server.stdout.readline()
            assert reaches()
            net.cut(1)
            assert not reaches()
            net.reconnect(1)
            assert reaches()
        finally:
            server.kill()
            server.communicate()
    with pytest.raises(OSError, match=r"."):
        socket.if_nametoindex("net0")  # none of it was in this process's own network
