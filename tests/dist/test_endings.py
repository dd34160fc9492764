"""How a training process ends decides, even if a pipe, a shell or a parent drops its code (docs/decisions/0144)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
TRAIN = """
import os, signal, sys, threading, time, torch
def train(how="", steps=3):
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for step in range(steps):
        optimizer.zero_grad()
        layer(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        open("stepped", "w").close()
    if how == "raise": raise ValueError("bad sample 7")
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "words": raise SystemExit("no data left")
    if how == "hard": os._exit(5)
if __name__ == "__main__":
    train(*sys.argv[1:2], *map(int, sys.argv[2:]))
"""
CHILD = """
import os, sys, time, multiprocessing as mp, train
if __name__ == "__main__":
    child = mp.get_context({start!r}).Process(target=train.train, args={args})
    child.start()
    if {ends}:
        while not os.path.exists("stepped"): time.sleep(0.1)
        child.terminate()
    child.join()
"""
TWO = """
import os, sys, torch, train
torch.distributed.init_process_group("gloo")
torch.distributed.all_reduce(torch.ones(1))
train.train("raise" if sys.argv[1] == os.environ["RANK"] else "")
"""


@pytest.fixture
def up(tmp_path):
    """up(text, *words): run `muster up` with a shell script, or a Python script, next to train.py."""
    environment = {**os.environ, "PYTHONPATH": str(HOME), "PATH": f"{FAB.parent}{os.pathsep}{os.environ['PATH']}"}
    line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--requirements", "no"]
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "two.py").write_text(TWO)

    def up(text, *words):
        name, typed = ("run.sh", "bash run.sh") if words[:1] != ("python",) else ("all.py", "python all.py")
        (tmp_path / name).write_text(text)
        line_of_it = [*line, *(word for word in words if word != "python"), "--script", typed]
        return subprocess.run(
            line_of_it,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
        )

    return up


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "python train.py raise 2>&1 | tee out.log",
            "train.py, which trained below it, failed: ValueError: bad sample 7",
        ),
        ("python train.py kill; echo over", "train.py, which trained below it, failed: it was killed by a signal"),
        (
            "PYTHONPATH=. python train.py raise 2>&1 | tee out.log",
            "train.py below it ended with code 1: ValueError: bad sample 7",
        ),
        ("python -I train.py kill; echo over", "train.py below it was killed by SIGKILL"),
        (
            "if [ ${1:-1200} -gt 0 ]; then bash run.sh $((${1:-1200} - 1)); true; "
            "else PYTHONPATH=. python train.py raise | tee out.log; fi",
            "train.py below it ended with code 1: ValueError: bad sample 7",
        ),
        (
            "echo 'import os, torch; os.kill(os.getpid(), 9)' > load.py\npython load.py | cat",
            "nothing trained below it, and load.py was killed by SIGKILL",
        ),
        ("env -i PATH=$PATH python train.py hard | cat", "train.py below it ended with code 5"),
        ("python train.py words | cat", "train.py, which trained below it, failed: it ended with code 1"),
        ("python train.py hard & wait", "train.py, which trained below it, failed: it ended with code 5"),
        ("python -c pass\npython no-such.py | cat", ""),
        (
            "python train.py '' 100000000 &\nuntil [ -e stepped ]; do sleep 0.1; done",
            "has not ended: let the script wait for it",
        ),
    ],
)
def test_a_training_whose_exit_code_a_shell_drops_fails_with_its_own_error(up, text, words):
    done = up(text)
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "python -c 'raise ValueError(1)' || true\npython train.py | tee out.log",
        "for how in raise kill ''; do python train.py $how && break; done",
        "for how in '' raise; do python train.py $how || echo a trial failed; done",
        "python train.py | tee out.log\npython -c 'raise ValueError(1)' | cat",
        "PYTHONPATH=. python train.py | tee out.log",
        "export PYTHONPATH=.\nfor how in raise ''; do python train.py $how && break; done",
        "PYTHONPATH=. python -c 'import time, torch; time.sleep(99)' &\npython train.py\nkill $!\nwait",
    ],
)
def test_a_failure_that_a_later_training_repairs_or_the_shell_handles_fails_no_run(up, text):
    done = up(text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CHILD.format(start="fork", args=("raise",), ends=False), "it ended with code 1"),
        (CHILD.format(start="spawn", args=("kill",), ends=False), "it was killed by a signal"),
        ("import threading, train\nthreading.Thread(target=train.train, args=('raise',)).start()",
         "its thread that trained failed: ValueError: bad sample 7"),
    ],
)  # fmt: skip
def test_a_failed_training_in_a_child_or_a_thread_fails_the_run(up, text, words):
    done = up(text, "python")
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in done.stderr


def test_a_child_that_its_script_ends_on_purpose_fails_no_run(up):
    done = up(CHILD.format(start="spawn", args=("", 10**8), ends=True), "python")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rank_of_a_torchrun_in_a_pipe_fails_its_run_on_two_nodes(up):
    done = up("torchrun two.py 1 2>&1 | tee out.log", "--workers", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ValueError: bad sample 7" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "did bash train? see"),
        (("--workers", "1"), "no rank of bash joined a process group or made a step: did it train? see"),
    ],
)
def test_a_run_that_neither_trained_nor_wrote_is_questioned_on_any_number_of_nodes(up, words, says):
    done = up("python -c 'print(1)'", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"hint: {says}" in done.stderr
    assert "Muster saw no training step, and the script wrote no files" in done.stdout + done.stderr
