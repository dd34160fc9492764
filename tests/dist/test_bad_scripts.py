"""Scripts that disturb a watcher or an agent: each ends clearly, works as it does alone, and leaves nothing."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")


@pytest.fixture
def up(tmp_path):
    """run(body, *words): run a script with `muster up` as one rank; the script's files are in `work`."""

    def run(body, *words):
        (tmp_path / "train.py").write_text(body)
        line = [str(FAB), "--search-root", str(HOME), "up", "--backend", "processes", "--run", "r"]
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        line += ["--script", " ".join(("train.py", *words))]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    run.run_dir = tmp_path / "runs" / "r"
    run.work = run.run_dir / "work"
    return run


def left(run_dir):
    """The processes that still have the run's folder among their variables."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MUSTER_RUN_DIR") == str(run_dir) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_script_that_closes_all_files_finds_only_its_own_text_in_its_files(up):
    done = up(
        "import os, time\nos.closerange(3, 1024)\n"
        "files = [open(f'{n}.txt', 'w') for n in range(6)]\n"
        "time.sleep(5)\n"
        "for file in files: file.write('mine'); file.close()\n"
    )
    assert done.returncode == 0, done.stderr
    assert {path.read_text() for path in up.work.glob("*.txt")} == {"mine"}


PATCHES = """
import json, sys, time
sleep = time.sleep
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader
import torch.distributed as dist
calls = {"backward": 0, "step": 0, "next": 0}
def counting(name, function):
    def counted(*words, **named):
        calls[name] += 1
        return function(*words, **named)
    return counted
torch.autograd.backward = counting("backward", torch.autograd.backward)
torch.optim.SGD.step = counting("step", torch.optim.SGD.step)
dataloader._BaseDataLoaderIter.__next__ = counting("next", dataloader._BaseDataLoaderIter.__next__)
def broken(*_, **__):
    raise RuntimeError("the script has broken this on purpose")
time.time, time.perf_counter, sys.settrace = lambda: 0.0, broken, broken
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for x, in DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=2):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
sleep(3)
print(calls["backward"], calls["step"], calls["next"])
"""


def test_a_script_that_patches_torch_and_the_clock_finds_its_own_patches_and_ends_well(up):
    done = up(PATCHES)
    assert done.returncode == 0, done.stderr
    assert "10 10 11" in done.stdout
    assert "on purpose" not in done.stdout + done.stderr


HOOKS = """
import faulthandler, os, signal, sys, time
seen = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD, signal.SIGSEGV):
    signal.signal(number, lambda number, frame: seen.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
end = time.time() + 3
while time.time() < end: pass
signal.setitimer(signal.ITIMER_REAL, 0)
faulthandler.enable()
faulthandler.dump_traceback_later(100)
sys.excepthook = lambda kind, *_: print("its own hook:", kind.__name__, "after", len(seen) > 20, flush=True)
raise ValueError("told by its hook")
"""


def test_a_script_has_its_own_signal_handlers_and_its_own_excepthook(up):
    done = up(HOOKS)
    assert done.returncode == 1
    assert "its own hook: ValueError after True" in done.stdout
    assert "ended with code 1" in done.stderr


GONE = """
import os, shutil, sys, time
print("the last line", end="", flush=True)
sys.stdout.close()
os.close(1)
os.close(2)
shutil.rmtree(os.getcwd())
os.umask(0o777)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
os._exit(7)
"""


def test_a_script_that_closes_output_removes_its_folder_and_leaves_a_daemon_ends_with_its_code(up):
    done = up(GONE)
    assert done.returncode == 1
    assert "ended with code 7" in done.stderr
    assert "the last line" in (up.run_dir / "logs/rank-0.log").read_text()
    assert not left(up.run_dir)


FILLS = """
import sys, time
open("ckpt.pt", "w").write("weights")
big = open("big", "wb", buffering=0)
try:
    while True:
        big.write(bytes(1 << 16))
except OSError:
    if sys.argv[1] == "dies":
        raise
time.sleep(3)
print("goes on")
"""


@pytest.mark.parametrize(("ends", "code"), [("dies", 1), ("goes-on", 0)])
def test_a_script_that_fills_the_disk_keeps_its_files_and_the_end_says_so(up, tmp_path, ends, code):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    runs = tmp_path / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", runs], check=True)
    try:
        done = up(FILLS, ends)
        assert done.returncode == code, done.stderr
        assert (up.work / "ckpt.pt").read_text() == "weights"
        assert "runs/r/work" in done.stdout
        assert "is full: output of ranks may be missing" in done.stderr
        assert code == 0 or "No space left on device" in done.stderr
        assert (up.run_dir / "outcome.json").stat().st_size > 0
        assert (up.run_dir / "report.html").exists()
    finally:
        subprocess.run(["umount", "--lazy", runs], check=True)
