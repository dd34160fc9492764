"""Ends of trainings that the code of what was started does not tell of: is `done` said of those that went well alone?

    python -m benchmarks.endings [--quick]        ONLY="tee": the cases with this word; BACKEND=docker: in
                                               containers, BACKEND=HOST: on that host; HAND=0: without the rival; AT_ONCE=2: so many at a
                                               time; INSIDE=1: two minutes for all

Each case is a folder with a script or a shell script, given to `fab up`. Its truth is written beside it: `done`, or
`failed`. Two fifths are drawn: a way to end, below a way to start. The rival is the code of the same words typed by
hand, which is what a shell or torchrun alone says. INSIDE=1 runs shells and Pythons as a rank does, without `fab up` and with
a stand-in for torch, whose import takes 3 s of each case; cases that need torch itself are left out.
"""

# ruff: noqa: E501 (a script of several lines stands on one)
from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME
from muster.stop import UNASKED
from trainer.node import endings, training_alone

AT_ONCE, SEED, DRAWN = int(os.environ.get("AT_ONCE", "2")), 36, 24
INSIDE = os.environ.get("INSIDE") == "1"
TRAIN = """
import ctypes, os, signal, subprocess, sys, threading, time
if "usage" in sys.argv: raise SystemExit("train.py: no such option")
import torch, torch.distributed as dist
def train(how="", steps=4):
    model = torch.nn.Linear(4, 1)
    if dist.is_initialized(): model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(steps):
        optimizer.zero_grad(); model(torch.randn(8, 4)).square().mean().backward(); optimizer.step()
        if step == 2 and os.environ.get("RANK", "0") == os.environ.get("AT", "0"): end(how)
def end(how):
    if how == "raise": raise ValueError("bad sample 7")
    if how == "code": sys.exit(3)
    if how == "words": raise SystemExit("no data left")
    if how == "hard": os._exit(5)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "term": os.kill(os.getpid(), signal.SIGTERM)
    if how == "abort": os.abort()
    if how == "segv": ctypes.string_at(0)
    if how == "ctrl-c": raise KeyboardInterrupt
    if how == "early": sys.exit(0)
    if how == "early hard": os._exit(0)
if __name__ == "__main__":
    if "early at once" in sys.argv: sys.exit(0)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1: dist.init_process_group("gloo")
    if "load" in sys.argv: open("no/such/data")
    train(*sys.argv[1:2])
    if "saved" in sys.argv: open("out.pt", "w").write("x")
    print("trained", flush=True)
"""
STAND_IN = {
    "torch/__init__.py": """
from . import optim, distributed
class randn:
    def __init__(self, *_): pass
    def square(self): return self
    def mean(self): return self
    def backward(self): pass
class nn:
    class Linear:
        def __init__(self, *_): pass
        def __call__(self, _): return randn()
        def parameters(self): return []
class multiprocessing:
    def spawn(go, words, nprocs):
        import multiprocessing as mp
        children = [mp.get_context("spawn").Process(target=go, args=(at, *words)) for at in range(nprocs)]
        for child in children: child.start()
        for child in children: child.join()
        if any(child.exitcode for child in children): raise RuntimeError("a process failed")
""",
    "torch/distributed.py": "def is_initialized(): return False\n",
    "torch/optim/__init__.py": "from .optimizer import SGD\n",
    "torch/optim/optimizer.py": """
hooks = []
register_optimizer_step_post_hook = hooks.append
class SGD:
    def __init__(self, *_): pass
    def zero_grad(self): pass
    def step(self): [hook(self) for hook in hooks]
""",
}
# How a training ends, and whether that is well.
ENDS = {"": True, "early": True, "early hard": True, "raise": False, "code": False, "words": False, "hard": False,
        "kill": False, "term": False, "abort": False, "segv": False, "ctrl-c": False, "load": False}  # fmt: skip
# Ways in which a shell starts one, and hears nothing of its code.
STARTS = (
    "{} 2>&1 | tee out.log", "{} > out.log 2>&1; echo over", "{} &\nwait", "nohup {} > out.log 2>&1 &\nwait",
    "( {} ) | cat", "set +e\n{}\necho over", "timeout 60 {} | cat", "{} |& grep -v warning; true", "X=1 {} | tail -n 5",
    "trap 'exit 0' EXIT\n{}", "bash -c '{} | cat'", "cd . && {} | sed s/a/a/", "f() {{ {}; }}\nf | cat",
)  # fmt: skip
TORCHRUN = "torchrun --standalone --nproc-per-node 2 train.py {} 2>&1 | tee out.log"
PY, HEAD = "python train.py {}", "import subprocess, sys, os, multiprocessing as mp, threading, torch\nimport train\n"
MAIN = HEAD + "if __name__ == '__main__':\n    "


@dataclass(frozen=True)
class Case:
    """`shell` is run.sh, or `python` train-all.py; `well`: its truth."""

    name: str
    well: bool
    shell: str = ""
    python: str = ""


def _shell(name: str, well: bool, text: str) -> Case:
    return Case(name, well, shell=text)


LONG = "echo 'import train; train.train(steps=10**8)' > long.py\n"
AGAIN = "echo 'import os, sys, train; train.train(); os.execv(sys.executable, [sys.executable, {}])' > a.py\npython a.py | cat"
ENDLESS = "mp.get_context('spawn').Process(target=train.train, args=('', 10**8){}); p.start(); time.sleep(3); {}\n"
BY_HAND = (
    _shell("probe fails, handled, then trains", True, "python -c 'raise ValueError(1)' || true\npython train.py"),
    _shell("probe that trains fails, then trains", True, "python train.py raise || true\npython train.py | tee out.log"),
    _shell("tries again till it works", True, "for how in raise kill ''; do python train.py $how && break; done"),
    _shell("tries three times in vain", False, "for i in 1 2 3; do python train.py raise && break; done\necho over"),
    _shell("a search whose second trial fails", True,
           "for how in '' raise ''; do python train.py $how | tee out.log; done"),
    _shell("a search whose last trial fails, asked for", True,
           "for how in '' '' raise; do python train.py $how || echo failed; done"),
    _shell("a second stage fails in a pipe", False,
           "python train.py | tee a.log\ncp train.py tune.py\npython tune.py raise | tee b.log"),
    _shell("the only training fails, and || true", False, "python train.py raise || true"),
    _shell("trains, and then a plot fails", True, "python train.py\npython -c 'raise ValueError(1)' || true"),
    _shell("fails, and then an evaluation goes well", False,
           "python train.py raise | tee out.log\npython -c 'import torch' | cat"),
    _shell("pipefail, well", True, "set -eo pipefail\npython train.py | tee out.log"),
    _shell("pipefail, failed", False, "set -eo pipefail\npython train.py raise | tee out.log"),
    _shell("exec, well", True, "exec python train.py"),
    _shell("no such option, in a pipe", False, "python -c pass\npython train.py usage 2>&1 | tee out.log"),
    _shell("no such module, in a pipe", False, "echo 'import no_such' > other.py\npython other.py | tee out.log"),
    _shell("nobody waits", False, "echo 'import time, train; time.sleep(5); train.train(steps=10**7)' > long.py\n"
           "nohup python long.py > out.log 2>&1 &"),
    _shell("nobody waits while it trains", False, "echo 'import train; train.train(steps=10**7)' > long.py\n"
           "nohup python long.py > out.log 2>&1 &\nsleep 8"),
    _shell("two at once, one fails", False, "python train.py &\npython train.py raise &\nwait"),
    _shell("two at once, well", True, "python train.py &\npython train.py &\nwait"),
    _shell("a monitor is ended", True,
           "python -c 'import time, torch; time.sleep(99)' &\npython train.py\nkill $!\nwait"),
    _shell("torchrun in a pipe, well", True, TORCHRUN.format("")),
    _shell("torchrun in a pipe, rank 1 fails", False, "export AT=1\n" + TORCHRUN.format("raise")),
    _shell("torchrun in a pipe, rank 1 is killed", False, "export AT=1\n" + TORCHRUN.format("kill")),
    _shell("torchrun restarts its ranks", True, "cat > twice.py <<'E'\nimport os, sys, train\n"
           "train.dist.init_process_group('gloo')\n"
           "train.train('raise' if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else '')\nE\n"
           "torchrun --standalone --max-restarts 1 --nproc-per-node 2 twice.py | tee out.log"),
    Case("a thread that trains raises", False,
         python=MAIN + "t = threading.Thread(target=train.train, args=('raise',)); t.start(); t.join()\n"),
    Case("a thread that trains, well", True,
         python=MAIN + "t = threading.Thread(target=train.train); t.start(); t.join()\n"),
    Case("a thread raises that does not train", True,
         python=MAIN + "t = threading.Thread(target=train.end, args=('raise',)); t.start(); train.train(); t.join()\n"),
    Case("a child's failure is not asked for", False,
         python=MAIN + "p = mp.get_context('spawn').Process(target=train.train, args=('raise',)); p.start(); p.join()\n"),
    Case("a forked child's failure is not asked for", False,
         python=MAIN + "p = mp.get_context('fork').Process(target=train.train, args=('raise',)); p.start(); p.join()\n"),
    Case("a forked child, well", True,
         python=MAIN + "p = mp.get_context('fork').Process(target=train.train); p.start(); p.join()\n"),
    Case("mp.spawn fails", False, python=HEAD + "def go(rank, how): train.train(how)\n" + "if __name__ == '__main__':\n"
         "    torch.multiprocessing.spawn(go, ('raise',), nprocs=2)\n"),
    Case("a script's subprocess trains and fails", False,
         python=MAIN + "subprocess.run([sys.executable, 'train.py', 'raise'])\n"),
    Case("a search of subprocesses", True,
         python=MAIN + "[subprocess.run([sys.executable, 'train.py', how]) for how in ('', 'raise', 'kill')]\n"),
    Case("a pool's trials fail and are counted", True, python=HEAD + "def go(how):\n    try: return train.train(how)\n"
         "    except ValueError: return 1\nif __name__ == '__main__':\n    mp.Pool(2).map(go, ['raise', '', 'raise'])\n"),
    Case("preparation fails, handled", True,
         python=MAIN + "subprocess.run([sys.executable, '-c', 'raise ValueError(1)'])\n    train.train()\n"),
    _shell("a training that timeout ends, asked for", True, LONG + "timeout 9 python long.py || true"),
    _shell("a training that timeout ends, in a pipe", False, LONG + "timeout 9 python long.py | cat"),
    _shell("becomes another program, well", True, AGAIN.format('"train.py"')),
    _shell("becomes another program, failed", False, AGAIN.format('"train.py", "raise"')),
    _shell("from standard input", False, "python - <<'E' | cat\nimport train\ntrain.train('raise')\nE"),
    _shell("if, else", True, "if python train.py raise; then :; else python train.py; fi"),
    _shell("the reader of a pipe leaves", True, "env -u PYTHONUNBUFFERED python -c 'import train; train.train(); print(1)' | true"),
    _shell("nothing trains, and a failure is asked for", True, "python -c pass\npython -c 'raise ValueError' || true"),
    _shell("killed before its first step", False,
           "echo 'import os, torch; os.kill(os.getpid(), 9)' > load.py\npython load.py | tee out.log"),
    _shell("a path of its own, failed", False, "PYTHONPATH=. python train.py raise 2>&1 | tee out.log"),
    _shell("a path of its own, exported, well", True, "export PYTHONPATH=.\npython train.py | tee out.log"),
    _shell("a path of its own, killed", False, "PYTHONPATH=src python train.py kill; echo over"),
    _shell("a path of its own, tries again", True,
           "export PYTHONPATH=.\nfor how in raise kill ''; do python train.py $how && break; done"),
    _shell("a path of its own, probe fails, handled", True,
           "export PYTHONPATH=.\npython -c 'import torch; raise ValueError' || true\npython train.py | cat"),
    _shell("a path of its own, torchrun in a pipe", False, "export AT=1 PYTHONPATH=.\n" + TORCHRUN.format("raise")),
    _shell("a path of its own, nobody waits", False, LONG + "PYTHONPATH=. nohup python long.py > out.log 2>&1 &\nsleep 9"),
    _shell("a monitor with a path of its own is ended", True,
           "PYTHONPATH=. python -c 'import time, torch; time.sleep(99)' &\npython train.py\nkill $!\nwait"),
    _shell("alone, failed", False, "python -I train.py code; echo over"),
    _shell("alone, well", True, "python -I train.py | tee out.log"),
    _shell("without variables, failed", False, "env -i PATH=$PATH HOME=$HOME python train.py hard | tee out.log"),
    _shell("a module in a shell in a shell", False, "bash -c 'bash -c \"python -m train raise | cat\"; true'"),
    Case("a child that its script ends", True, python=MAIN + "import time; p = " + ENDLESS.format("", "p.terminate()")),
    Case("a daemon of the script", True, python=MAIN + "import time; p = " + ENDLESS.format(", daemon=True", "")),
    Case("a child is killed, not asked for", False,
         python=MAIN + "p = mp.get_context('fork').Process(target=train.train, args=('kill',)); p.start(); p.join()\n"),
    Case("DataLoader workers", True, python=HEAD + "from torch.utils.data import DataLoader\nif __name__ == '__main__':\n"
         "    list(DataLoader(list(range(20)), num_workers=2)); train.train()\n"
         "    list(DataLoader(list(range(20)), num_workers=2, persistent_workers=True))\n"),
)  # fmt: skip


def drawn(count: int, seed: int = SEED) -> list[Case]:
    """So many cases, each a way to end below a way to start, no two the same."""
    pick = random.Random(seed)
    pairs = pick.sample([(how, start) for how in ENDS for start in STARTS], count)
    return [
        Case(f"{how or 'well'}: {start.format('...')!r}", ENDS[how], start.format(PY.format(f'"{how}"')))
        for how, start in pairs
    ]


def measure(quick: bool) -> dict[str, Any]:
    """How many ends are said as they are; by hand the code alone."""
    cases = [*BY_HAND, *drawn(DRAWN)]
    only = os.environ.get("ONLY", "")
    cases = [case for case in (cases[::6] if quick else cases) if only in case.name]
    cases = [case for case in cases if not INSIDE or not any(word in case.name for word in ("torchrun", "DataLoader"))]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        said = list(threads.map(_said_inside if INSIDE else _said, cases))
    wrong = [f"{case.name}: {words}" for case, (words, _) in zip(cases, said, strict=True) if not _right(case, words)]
    hand = sum((code == 0) != case.well for case, (_, code) in zip(cases, said, strict=True))
    rows = [
        Row(
            f"ends said wrongly, of {len(cases)}",
            str(len(wrong)),
            f"the code alone: {hand}" if os.environ.get("HAND") != "0" else "",
            "",
            "0",
            not wrong,
        )
    ]
    return result(rows, wrong)


def _right(case: Case, words: str) -> bool:
    return words.startswith("0") == case.well


def _written(folder: Path, case: Case) -> list[str]:
    """The words that run a case, whose files are in the folder from now on."""
    for name, text in {"train.py": TRAIN, "run.sh": case.shell, "all.py": case.python}.items():
        (folder / name).write_text(text)
    return ["bash", "run.sh"] if case.shell else [sys.executable, "all.py"]


def _said_inside(case: Case) -> tuple[str, int]:
    """The code that torchrun would see, with the words of the agent, and the code of the case itself."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        typed, outcome = _written(folder, case), folder / "outcome"
        outcome.mkdir()
        (outcome / UNASKED).touch()
        for module, text in STAND_IN.items():
            path = folder / "stand-in" / module
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{folder / 'stand-in'}:{training_alone.SITE}"}
        environment |= {"MUSTER_OUTCOME_DIR": str(outcome), "MUSTER_LIFE": f"0-0-{time.time_ns()}", "RANK": "0"}
        environment |= {"LOCAL_RANK": "0", "MUSTER_LAUNCHER_RANKS": "1" if case.shell else ""}
        # The name of torchrun's process, above which no shell is looked for.
        above = [
            "-c",
            "import subprocess, sys; sys.exit(subprocess.call(sys.argv[2:]))",
            "muster.trainer.elastic.torchrun",
        ]
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", *above, *typed], cwd=folder, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        judged = endings.judged(process, environment)
        while judged.poll() is None:  # as torchrun does
            time.sleep(0.1)
        code, by_hand = judged.returncode, process.returncode
        words = ", ".join(endings.crash_of(outcome, 0, process.pid))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    say(f"{case.name}: {code} ({'well' if case.well else 'failed'}), alone {by_hand}: {words}")
    return f"{code} {words}", by_hand


def _said(case: Case) -> tuple[str, int]:
    """Code and first words of `fab up`, and the code of the same words by hand."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        _written(folder, case)
        typed = "bash run.sh" if case.shell else "python all.py"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        backend = os.environ.get("BACKEND", "processes")
        where = ["up", "--backend", backend]
        if backend not in ("processes", "docker"):  # a host, as MUSTER_SSH_CONFIG has it
            where = ["deploy", "--hosts", backend]
        line = [HOME / ".venv" / "bin" / "fab", "--search-root", HOME, *where, "--requirements", "no"]
        done = subprocess.run(
            [*line, "--script", typed], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        shutil.rmtree(folder / "runs", ignore_errors=True)
        by_hand = ["timeout", "-s", "KILL", "100", *typed.split()] if os.environ.get("HAND") != "0" else ["true"]
        hand = subprocess.run(by_hand, cwd=folder, env=environment, capture_output=True, timeout=600)
    words = next((each for each in done.stderr.splitlines() if each.startswith("error")), done.stdout[-200:])
    say(
        f"{case.name}: {done.returncode} ({'well' if case.well else 'failed'}), by hand {hand.returncode}: {words[:230]}"
    )
    return f"{done.returncode} {words}", hand.returncode


if __name__ == "__main__":
    alone(measure, __doc__)
