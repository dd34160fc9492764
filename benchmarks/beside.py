"""This checkout beside another commit's, on one rack of three hosts, in turns: what did a change cost?

    git worktree add --detach ../before COMMIT; ln -s "$PWD/.venv" ../before/.venv
    python -m benchmarks.beside ../before [--pairs 10] [--only status,push]

Five jobs: `fab status`; `fab push` of a folder with one changed file; `fab deploy` of a script to its first step;
`fab push` of a folder whose packages have to be installed again, from wheels, and from one that is built. Turns are
before, now, now, before. Each job is counted as well as timed: logins and commands at the hosts' sshd (round trips),
processes that this machine's kernel started meanwhile (the hosts are containers here: theirs too), bytes over the
hosts' networks, CPU seconds of the command. Times of a busy machine mean nothing, counts of it little: run it alone.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from benchmarks import nodes, racks
from benchmarks.first_step import BASE, SCRIPT
from benchmarks.venv import HOME

NODES, MOST = 3, 1.05
# Two wheels, one of them with a need of its own; and a version that there is no wheel of.
NEEDS, BUILT = "einops==0.8.1\nfire==0.7.1\n", "fire==0.7.0\n"
_SSHD = "echo LogLevel VERBOSE >/etc/ssh/sshd_config.d/beside.conf; pkill -HUP -o -x sshd"
_STARTED = re.compile(r"^processes (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """What one command took. Bytes are those of all hosts together, in both directions."""

    seconds: float
    logins: int
    commands: int
    processes: int
    bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Contender:
    """A checkout, with a cache and a state of its own."""

    checkout: Path
    home: Path
    rack: racks.Rack

    @property
    def image(self) -> str:
        """The trainer's image of this checkout: an agent of the one does not fit the deploy of the other."""
        return f"muster-beside:{self.home.name}"

    def build(self) -> None:
        """Make that image, here and on the hosts."""
        subprocess.run(["make", "--silent", "image"], cwd=self.checkout, check=True, capture_output=True)
        subprocess.run(["docker", "tag", BASE, self.image], check=True)
        self.fab("push", "--image", self.image)

    def fab(self, task: str, *words: str) -> None:
        """Run a command of this checkout. Raises RuntimeError if it fails."""
        own = {"XDG_CACHE_HOME": f"{self.home}/cache", "XDG_STATE_HOME": f"{self.home}/state"}
        line = [str(self.checkout / ".venv/bin/fab"), task, "--hosts", ",".join(self.rack.names), *words]
        # As a user has it: what was compiled once is not compiled again.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(line, cwd=self.checkout, env={**kept, **own}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(line)}: {done.returncode}: {done.stderr[-2000:]}")

    def cost(self, work: Callable[[], None]) -> Cost:
        """Do the work, and count."""
        since, before, spent = time.time(), _counters(self.rack), _cpu()
        began = time.monotonic()
        work()
        seconds, spent = time.monotonic() - began, _cpu() - spent
        after = _counters(self.rack)
        logins, commands = _sessions(self.rack, since)
        return Cost(seconds, logins, commands, after[0] - before[0], after[1] - before[1], spent)


def jobs(contender: Contender, folder: Path) -> dict[str, Callable[[], None]]:
    """What is compared. Each call of a job has something new to do, as a user's next command has."""

    def change(needs: str = "") -> None:
        (folder / "train.py").write_text(f"# {uuid.uuid4().hex}\n{SCRIPT}")
        (folder / "requirements.txt").write_text(needs)

    def push() -> None:
        change()
        contender.fab("push", "--image", contender.image, "--folder", str(folder), "--requirements", "no")

    def deploy() -> None:
        change()
        run = f"beside-{uuid.uuid4().hex[:8]}"
        sent = ("--image", contender.image, "--folder", str(folder), "--requirements", "no")
        contender.fab("deploy", *sent, "--script", "train.py", "--run", run)

    def packages(needs: str) -> None:
        change(f"# {uuid.uuid4().hex}\n{needs}")
        for name in contender.rack.names:
            contender.rack.on(
                name, "docker volume ls -q --filter label=muster.packages | xargs -r docker volume rm >&2"
            )
        contender.fab("push", "--image", contender.image, "--folder", str(folder))

    return {
        "status": lambda: contender.fab("status"),
        "push": push,
        "first step": deploy,
        "packages": lambda: packages(NEEDS),
        "built": lambda: packages(BUILT),
    }


def measure(before: Path, pairs: int, only: Sequence[str]) -> bool:
    """Print a table a job; whether nothing costs more than the limit in its whole middle half."""
    good = True
    with nodes.scratch() as scratch, racks.rack(NODES, "classic") as rack, images():
        for container in rack.containers.values():
            subprocess.run(["docker", "exec", container, "sh", "-c", _SSHD], check=True)
        two = [Contender(path.resolve(), scratch / name, rack) for path, name in ((before, "before"), (HOME, "now"))]
        work = []
        for contender in two:
            contender.build()
            folder = contender.home / f"project-{contender.home.name}"
            folder.mkdir(parents=True)
            work.append(jobs(contender, folder))
        for job in [name for name in work[0] if not only or name in only]:
            costs: list[list[Cost]] = [[], []]
            for turn in range(-1, pairs):  # the first pair warms the caches of both
                for number in (0, 1) if turn % 2 else (1, 0):
                    cost = two[number].cost(work[number][job])
                    costs[number] += [cost] if turn >= 0 else []
            good &= _show(job, *costs)
    return good


@contextmanager
def images() -> Iterator[None]:
    """Remove our names of images at the end."""
    try:
        yield
    finally:
        names = ("muster-beside:before", "muster-beside:now")
        subprocess.run(["docker", "image", "rm", *names], capture_output=True, check=False)


def _show(job: str, before: Sequence[Cost], now: Sequence[Cost]) -> bool:
    print(f"\n{job}: median (middle half) before -> now; ratios of the pairs", flush=True)
    good = True
    for number, name in enumerate(Cost.__dataclass_fields__):
        old, new = [astuple(cost)[number] for cost in before], [astuple(cost)[number] for cost in now]
        ratios = [mine / theirs for mine, theirs in zip(new, old, strict=True) if theirs]
        low, middle, high = _quarters(ratios) if len(ratios) > 1 else (1.0, 1.0, 1.0)
        fine = low <= MOST
        good &= fine
        print(
            f"  {name:10} {statistics.median(old):12,.2f} -> {statistics.median(new):12,.2f}   "
            f"{middle:.3f}x ({low:.3f}-{high:.3f})  {'met' if fine else 'NOT met'}",
            flush=True,
        )
    return good


def _quarters(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _counters(rack: racks.Rack) -> tuple[int, int]:
    """Processes that this machine has started since its boot, and bytes over the hosts' networks."""
    match = _STARTED.search(Path("/proc/stat").read_text())
    count = ["sh", "-c", "cat /sys/class/net/eth0/statistics/[rt]x_bytes"]
    moved = 0
    for container in rack.containers.values():
        shown = subprocess.run(["docker", "exec", container, *count], check=True, capture_output=True, text=True)
        moved += sum(map(int, shown.stdout.split()))
    return int(match[1]) if match else 0, moved


def _sessions(rack: racks.Rack, since: float) -> tuple[int, int]:
    """Logins and commands that the hosts' sshd have noted."""
    text = ""
    for container in rack.containers.values():
        logs = ["docker", "logs", "--since", f"{since:.3f}", container]
        text += subprocess.run(logs, check=True, capture_output=True, text=True).stderr
    return text.count("Accepted publickey"), text.count("Starting session:")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Read the command line, measure, and end with 1 if something costs more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    return 0 if measure(asked.before, asked.pairs, [name for name in asked.only.split(",") if name]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
