"""A long run with a random fault every half minute: does it end with the right weights, and does it report each fault?

    make rack RACK=long NODES=5
    python -m benchmarks.long_run --rack long [--minutes 20] [--seed 1] [--keep FOLDER]

The run is Muster's own trainer on all hosts of the rack; a majority of them keeps training (--min-nodes). A
`fab deploy` follows it, and after its death by SIGKILL a `fab attach`. Every half minute, once all hosts train, a fault
and a host are drawn, each fault as often as the others; the last host has a small disk, for the fault that fills it,
and so it never loses power. The first line about the fault counts, as in benchmarks.breaks. At the end the run is
stopped. Its weights record how often each sample was learnt, and are compared with those of one process without faults.
--keep: a folder for all files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import nodes
from benchmarks.breaks import CAUSES, FAULTS, Act
from benchmarks.breaks.hosts import as_root
from benchmarks.breaks.trial import Rack, first_words
from benchmarks.figure import Row, result, say, spread, stop_like_ctrl_c, table
from benchmarks.venv import FAB_THERE
from muster.checkpoint import store
from muster.data import StreamSampler

SAMPLES, BATCH, EVERY_S, BACK_S, BOUND = 203, 40, 30.0, 150.0, 1e-9
TRAIN = f"--recipe long.py --batch {BATCH} --steps 1000000 --eval-every 0 --checkpoint-every 60 --clip 0"
RECIPE = f"""
import time
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        self.counts = nn.Parameter(torch.zeros({SAMPLES}, dtype=torch.float64))
    def forward(self, numbers):
        inputs = torch.stack([torch.sin(numbers.double() * f) for f in (0.1, 0.7, 1.3, 2.1)], 1)
        return self.net(inputs)[:, 0], self.counts[numbers]

class Counting(torch.optim.SGD):
    # The gradient of a count is its sample's part of the global batch.
    def __init__(self, model, lr):
        super().__init__(model.net.parameters(), lr=lr)
        self.counts = model.counts
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            self.counts += (self.counts.grad * {BATCH}).round()
    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        self.counts.grad = None

def model():
    return Net()

def datasets(data):
    return TensorDataset(torch.arange({SAMPLES})), TensorDataset(torch.arange(4))

def optimizer(model, lr):
    return Counting(model, lr)

def loss(model, batch):
    if torch.is_grad_enabled():
        time.sleep(PACE)
    found, counts = model(batch[0])
    return (found - torch.cos(batch[0].double() * 0.37)).square().mean() + (counts - counts.detach()).mean()
"""


@dataclass(frozen=True)
class Trouble:
    """A fault: how it is caused, how and after how many seconds it is undone, and what its first words must contain."""

    name: str
    make: Act | None
    says: str
    mend: Act | None = None
    for_s: float = 0.0
    pair: bool = False
    small: bool | None = None


def _signal(name: str) -> Act:
    def act(rack: Rack, run: str, host: str) -> None:
        file = f"$(ls /home/*/.muster/runs/{run}/ranks/rank-{rack.hosts.index(host)}.jsonl)"
        pid = json.loads(rack.shell(host, f"""grep '"kind": "started"' {file} | tail -n 1"""))["pid"]
        rack.shell(host, f"docker exec muster-{run} sh -c 'kill -{name} {pid}'")

    return act


_ENGINE = "kill $(pidof dockerd); while pidof dockerd; do sleep 0.2; done"
_NEW = "setsid env -u AUTHORIZED_KEY dockerd >/proc/1/fd/1 2>&1 </dev/null &"
_STARTED, _EMPTIED = as_root("docker start muster-$name"), as_root("rm -f $run/filler")


def _of(name: str, for_s: float, says: str = "", small: bool | None = None, mend: Act | None = None) -> Trouble:
    fault = FAULTS[name]
    words = says or "|".join(CAUSES[cause] for cause in fault.cause)
    return Trouble(name, fault.outside, words, mend or fault.mend, for_s, fault.culprit == "pair", small)


TROUBLES = (
    Trouble("a rank is killed", _signal("KILL"), CAUSES["killed"]),
    Trouble("a rank is stopped (SIGSTOP)", _signal("STOP"), CAUSES["stopped"]),
    _of("docker kill", 8.0, mend=_STARTED),
    _of("docker pause", 12.0, f"{CAUSES['stopped']}|{CAUSES['node lost']}"),
    _of("power cut", 6.0, small=False),
    _of("two hosts cut off", 15.0),
    _of("a host cut off from both", 15.0),
    Trouble("the engine is restarted", as_root(f"{_ENGINE}; {_NEW}"), rf"engine|restart|{CAUSES['node lost']}"),
    _of("disk full on the first host", 12.0, small=True, mend=_EMPTIED),
    Trouble("the follower is killed", None, "follows the run from here on"),
)


@dataclass
class Told:
    """A fault that was caused, and its consequences, in seconds since then."""

    trouble: Trouble
    host: str
    at: float
    said: str = ""
    said_s: float = 0.0
    back_s: float | None = None

    def verdict(self, other: str) -> str:
        """The judgement on the first words. `other`: the host after the culprit, for a link between two hosts."""
        if not self.said:
            return "silent"
        head = self.said.partition(";")[0]
        named = self.host in head and (other in head or not self.trouble.pair)
        why = re.search(self.trouble.says, self.said) is not None
        return "right" if named and why else "culprit only" if named else "WRONG"


class Long:
    """The run, and the command that follows it."""

    def __init__(self, rack: Rack, folder: Path, draw: random.Random) -> None:
        self.rack, self.folder, self.draw = rack, folder, draw
        self.run, self.names = f"long-{uuid.uuid4().hex[:6]}", rack.hosts
        self.dir, self.output = folder / "runs" / self.run, folder / "said"
        self.hosts = ("--hosts", ",".join(self.names), "--run", self.run)
        self.story: list[str] = []
        self.deck: list[Trouble] = []
        (folder / "long.py").write_text(RECIPE.replace("PACE", "0.05"))

    def follow(self, *words: str) -> None:
        """Start `fab deploy`, or `fab attach` after the death of the first follower."""
        line = [*FAB_THERE, *words]
        with self.output.open("ab") as out:
            environment = self.rack.environment
            self.follower = subprocess.Popen(line, cwd=self.folder, env=environment, stdout=out, stderr=out)

    def fab(self, task: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command while the follower runs."""
        line = [*FAB_THERE, task, *self.hosts, *words]
        return subprocess.run(
            line, cwd=self.folder, env=self.rack.environment, capture_output=True, text=True, timeout=300
        )

    def start(self) -> None:
        """Deploy, and wait until all hosts train."""
        FAULTS["disk full on the first host"].before(self.rack, self.run, self.names[-1])
        least = len(self.names) // 2 + 1
        image = ["--image", self.rack.image, "--folder", str(self.folder), "--min-nodes", str(least)]
        self.follow("deploy", *self.hosts, *image, "--args", TRAIN)
        began = time.time()
        if not self.until(lambda: self.all_step(began), 180.0):
            self.give_up("it did not start")

    def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Whether the condition came true in time; gives up if the follower ends meanwhile."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if condition():
                return True
            if self.follower.poll() is not None:
                self.give_up(f"the follower ended with {self.follower.returncode}")
            time.sleep(0.3)
        return False

    def give_up(self, why: str) -> None:
        """Raise an error with the end of the output."""
        raise RuntimeError(f"{why}\n{self.output.read_text(errors='replace')[-3000:]}")

    def all_step(self, since: float) -> bool:
        """Whether each host has made a step after `since`."""
        return all(self._last_step(host) > since for host in self.names)

    def _last_step(self, host: str) -> float:
        file = f"/home/*/.muster/runs/{self.run}/ranks/rank-{self.names.index(host)}.jsonl"
        line = f"""grep -h '"kind": "step"' {file} | tail -n 1"""
        try:
            return float(json.loads(self.rack.shell(host, line))["t"])
        except (ValueError, subprocess.SubprocessError):
            return 0.0

    def trouble(self) -> Told:
        """Draw a fault, cause it and undo it; wait until it was reported and all hosts train again."""
        if not self.deck:  # all faults in a new order; the follower is not killed first, when nothing was reported yet
            self.deck = self.draw.sample(TROUBLES, len(TROUBLES))
            self.deck.sort(key=lambda each: each.make is not None and not self.story)
        trouble = self.deck.pop()
        small = self.names[-1]
        hosts = [name for name in self.names if trouble.small is None or trouble.small == (name == small)]
        host, before = self.draw.choice(hosts), self.output.stat().st_size
        told = Told(trouble, host if trouble.make else "muster", time.time())
        say(f"{trouble.name}: {told.host}")
        if trouble.make is None:
            self.follower.kill()
            self.follower.wait()
            time.sleep(5.0)
            before = self.output.stat().st_size
            self.follow("attach", *self.hosts)
        else:
            trouble.make(self.rack, self.run, host)
        mend_at = told.at + trouble.for_s
        while time.time() < mend_at:
            self.listen(told, before)
            time.sleep(0.2)
        if trouble.mend:
            trouble.mend(self.rack, self.run, host)
        mended = time.time()

        def back() -> bool:
            self.listen(told, before)
            return bool(told.said) and self.all_step(mended)

        if self.until(back, BACK_S) or self.all_step(mended):
            told.back_s = time.time() - told.at
        if told.said and trouble.make:
            self.story.append(told.said)
        return told

    def listen(self, told: Told, before: int) -> None:
        """Record the first words about a fault, once they are printed."""
        if told.said:
            return
        text = self.output.read_bytes()[before:].decode(errors="replace")
        if told.trouble.make:
            told.said = first_words(text)
        else:  # after its death, everything reported before must be reported again, in order
            end, missing = 0, ""
            for words in self.story:
                at = text.find(words, end)
                missing, end = missing or words * (at < 0), max(end, at)
            told.said = next((line for line in text.splitlines() if re.search(told.trouble.says, line)), "")
            told.said = told.said and (f"fab does not tell again: {missing}" if missing else told.said)
        told.said_s = time.time() - told.at

    def end(self) -> None:
        """Stop the run and fetch it."""
        self.fab("stop")
        self.follower.wait(120)
        self.fab("fetch")

    def clean(self) -> None:
        """Remove everything of the run."""
        if self.follower.poll() is None:
            self.follower.kill()
            self.follower.wait()
        self.fab("down")
        for name in self.names:
            self.rack.shell(name, f"umount -l /home/*/.muster/runs 2>/dev/null; rm -rf /home/*/.muster/runs/{self.run}")


def _weights(long: Long) -> list[Row]:
    """Compare the last checkpoint with the order of the data, and with one process without faults."""
    newest, _ = store.newest_usable(long.dir / "checkpoints")
    if newest is None:
        return [Row("the last weights", "there is no checkpoint", met=False)]
    model, last = store.load(newest.path)[0]["model"], newest.manifest.step
    taken = Counter({number: round(float(each)) for number, each in enumerate(model["counts"])})
    sampler = StreamSampler(SAMPLES, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0)
    due = Counter(sampler.indices(0, BATCH * last))
    repeated, missed = (taken - due).total(), (due - taken).total()
    calm = long.folder / "calm"
    recipe = long.folder / "calm.py"
    recipe.write_text(RECIPE.replace("PACE", "0.0"))
    options = TRAIN.replace("long.py", str(recipe)).replace("every 60", f"every {last}").split()
    one = {"OMP_NUM_THREADS": "1"}  # in a model this small, threads would wait for each other
    with nodes.ours(calm, 1, options, variables=one) as run:
        run.wait(lambda: run.events(0, "checkpoint"), "a checkpoint", 900.0)
    other = store.load(calm / f"checkpoints/step-{last:08d}")[0]["model"]
    largest = max(float(tensor.abs().max()) for name, tensor in other.items() if name != "counts")
    far = max(float((model[name] - other[name]).abs().max()) for name in other if name != "counts") / largest
    return [
        Row("samples repeated / missed in the weights", f"{repeated} / {missed}", target="0 / 0",
            met=(repeated, missed) == (0, 0)),
        Row(f"the weights after {last} steps differ from those of one process without faults by at most",
            f"{far:.1e} of the largest", target=f"<= {BOUND:.0e}", met=far <= BOUND),
    ]  # fmt: skip


def _rows(long: Long, told: list[Told], minutes: float) -> list[Row]:
    back = [each.back_s for each in told if each.back_s is not None]
    verdicts = Counter(_verdict(long, each) for each in told)
    return [
        Row(f"faults in {minutes:.0f} minutes, after which all hosts train again", f"{len(back)} of {len(told)}",
            target="all", met=len(back) == len(told)),
        Row("... after seconds, the repair included", spread(back, ".1f") if back else "never"),
        Row("... told of right first", f"{verdicts['right']} of {len(told)}", target="all",
            met=verdicts["right"] == len(told)),
    ]  # fmt: skip


def _verdict(long: Long, told: Told) -> str:
    names = long.names
    return told.verdict(names[(names.index(told.host) + 1) % len(names)] if told.trouble.pair else "")


def measure(rack: Rack, minutes: float, seed: int, keep: Path | None) -> None:
    """Run it, and print a line for each fault, and the figures."""
    with tempfile.TemporaryDirectory(prefix="muster-long-", ignore_cleanup_errors=True) as name:
        long, told = Long(rack, Path(name), random.Random(seed)), list[Told]()
        try:
            long.start()
            began = time.monotonic()
            while time.monotonic() - began < minutes * 60:
                at = time.monotonic()
                each = long.trouble()
                told.append(each)
                back = "NOT BACK" if each.back_s is None else f"back after {each.back_s:.1f} s"
                print(f"| {each.trouble.name} | {each.host} | {_verdict(long, each)} | {each.said[:220]} | "
                      f"{each.said_s:.1f} s | {back} |", flush=True)  # fmt: skip
                time.sleep(max(0.0, EVERY_S - (time.monotonic() - at)))
            long.end()
            rows = [*_rows(long, told, minutes), *_weights(long)]
            print(table(result(rows, [f"{len(rack.hosts)} hosts, seed {seed}, load {os.getloadavg()[1]:.0f}"])))
        finally:
            long.clean()
            if keep:
                pipes = shutil.ignore_patterns(".*", "calm", "latest")
                shutil.copytree(name, keep, dirs_exist_ok=True, symlinks=True, ignore=pipes)


def main() -> None:
    """Read the options, and measure."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rack", required=True)
    asked.add_argument("--image", default="muster-trainer:cpu")
    asked.add_argument("--minutes", type=float, default=20.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--keep", type=Path)
    options = asked.parse_args()
    stop_like_ctrl_c()
    filters = ["--filter", f"label=muster.rack={options.rack}"]
    up = subprocess.run(["docker", "ps", "-q", *filters], check=True, capture_output=True, text=True).stdout.split()
    if len(up) < 3:
        asked.error(f"rack {options.rack} has {len(up)} hosts: make rack RACK={options.rack} NODES=5")
    measure(Rack(options.rack, len(up), options.image), options.minutes, options.seed, options.keep)


if __name__ == "__main__":
    main()
