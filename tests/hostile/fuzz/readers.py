"""Every reader on crafted inputs, each in its own process: `python -m tests.hostile.fuzz.readers --count 1000`.

A reader must return a value or raise a readable error, within the budget of deploy/core/budget.py: 64 MB above idle,
2 seconds of CPU per MB (and 2 s for less than one), 20 s in all. ALLOWED lists readers that may use more, as a page
explains.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from deploy.commands import explain
from deploy.core.errors import DeployError
from deploy.host.files import incoming, listing, unpack
from deploy.report.console import Console
from deploy.report.page import run as page
from deploy.run.files import record, recorded_ends
from deploy.run.follower import Follower
from deploy.run.progress import State
from muster.checkpoint import manifest, store
from muster.errors import TrainError
from muster.files import read_lines
from tests.hostile.fuzz import crafted, crafted_projects, mutate, project_readers
from tests.hostile.fuzz.entries import ENTRIES
from trainer.node.hang import stacks, stuck_ranks

MOST_MB, MOST_CPU_S, CPU_S_A_MB, HANG_S = 64, 20.0, 2.0, 120
# Wall-clock time also passes while a busy machine does other work: only a reader that hangs reaches this limit.
WAITS_S = 900
ADDRESS_SPACE = 2 << 30
FAULTS = (DeployError, TrainError)
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Reader:
    """A reader, and the function that makes its inputs. `read` gets the folder with the files, and a Random."""

    name: str
    make: object
    read: object
    weight: int = 1


@dataclass(frozen=True)
class Tried:
    """What one input cost its reader; `wrong`: the exception, unless it is an error that users can read."""

    reader: str
    seed: str
    size: int
    memory_mb: float
    cpu_s: float
    wrong: str = ""

    @property
    def over(self) -> str:
        """What exceeds the budget or is wrong; empty if nothing is."""
        memory, cpu = ALLOWED.get(self.reader, (MOST_MB, MOST_CPU_S))
        limit = min(cpu, max(1.0, self.size / 1e6) * CPU_S_A_MB)
        return ", ".join(filter(None, (
            self.wrong, self.memory_mb > memory and f"{self.memory_mb:.0f} MB of memory",
            self.cpu_s > limit and f"{self.cpu_s:.1f} s of CPU (at most {limit:.1f})",
        )))  # fmt: skip


def explained(folder, chance):
    """`explain` on a folder, or on its only file."""
    files = sorted(path for path in folder.iterdir())
    what = str(files[0] if len(files) == 1 and files[0].is_file() else folder)
    explain.tell([what], Console(as_json=chance.random() < 0.5))


def checkpoint(folder, chance):
    """A checkpoint, as a resume and `python -m muster.checkpoint` look for it."""
    path = folder / "checkpoints" / "step-00000020"
    store.listed(folder / "checkpoints")
    store.locate(folder)
    manifest.read_manifest(path)
    read_lines(folder / "metrics.jsonl")
    store.load(path)


def of_ranks(folder, chance):
    """A rank's stacks, as its node's agent reads them."""
    for look in (*stacks.of_life(folder / "0.stacks", 0.0), *stacks.read(folder / "0.stacks")):
        stuck_ranks.describe(look, folder)
    looks = stacks.read(folder / "0.stacks", 1000)
    stacks.are_same(looks)
    stuck_ranks.is_moving(looks, 0.0, 1795238480.0)
    stacks.last_collectives(folder, 0, 4711)
    if look := stacks.read_crash(folder, 0):
        stuck_ranks.describe(look, folder)


def report(folder, chance):
    """A run's report page."""
    page.build(folder)


def followed(folder, chance):
    """A run followed from its start until everything in its folder has been read."""
    follower, state = Follower(folder, from_start=True), State(("a", "b"))
    while new := follower.read():
        for event in new:
            state.apply(event)


def recorded(folder, chance):
    """A run's record, its story and its row in the list of runs."""
    record.facts(folder)
    recorded_ends.listing(folder.parent, ())
    record.story_of(folder)
    incoming.Fetched(folder)
    explain.tell([str(folder)], Console())


def listed(folder, chance):
    """A host's list of files."""
    text = (folder / "answer").read_bytes().decode(errors="replace")
    listing.select(listing.parse(text), chance.choice(([], ["*.pt"])), lambda path, stamp: False, ())


def unpacked(folder, chance):
    """A tar stream from a host."""
    (folder / "here").mkdir()
    root = os.open(folder / "here", os.O_RDONLY)
    taking = unpack.Unpacker(root, 8 << 20, lambda parts: incoming.why_refused(parts, ["a"]), 2000)
    data = (folder / "answer").read_bytes()
    try:
        for start in range(0, len(data), 70_000):
            taking.feed(data[start : start + 70_000])
        taking.end()
    finally:
        taking.close()


def answered(folder, chance):
    """An answer from a host or a container, with something monstrous in it."""
    entry = chance.choice(ENTRIES)
    lines = chance.choice(entry.samples).decode().split("\n")
    place = max((number for number, line in enumerate(lines) if "{" in line or "[" in line), default=0)
    head, brace, tail = lines[place].partition("{") if "{" in lines[place] else (lines[place], "", "")
    if chance.random() < 0.7 and brace:
        lines[place] = head + crafted.planted(brace + tail, chance).decode(errors="replace")
        data = "\n".join(lines).encode(errors="replace")
    else:
        data = mutate.mutated("\n".join(lines).encode(), chance, entry.samples)
    data = data[: 16 << 20]  # a session's limit for an answer
    chance.size, chance.entry = len(data), entry.name
    entry.run(data)


READERS = (
    Reader("explain a log", crafted.log, explained, 8),
    Reader("explain an archive", crafted.packed, explained, 3),
    Reader("explain a folder", crafted.logs, explained),
    Reader("checkpoint", crafted.manifest, checkpoint, 3),
    Reader("stacks", crafted.stacks, of_ranks, 4),
    Reader("report", crafted.run_folder, report, 4),
    Reader("follow", crafted.run_folder, followed, 4),
    Reader("record", crafted.run_folder, recorded, 3),
    Reader("listing", crafted.listing, listed, 2),
    Reader("unpack", crafted.stream, unpacked, 2),
    Reader("answer", crafted.answer, answered, 8),
    Reader("wheel", crafted_projects.wheel, project_readers.remade, 3),
    Reader("git source", crafted_projects.source, project_readers.fetched, 3),
    Reader("requirements", crafted_projects.needs, project_readers.needed, 4),
    Reader("ignore rules", crafted_projects.rules, project_readers.selected, 3),
    Reader("git index", crafted_projects.index, project_readers.selected, 2),
    Reader("settings", crafted_projects.settings, project_readers.set_up, 3),
    Reader("script", crafted_projects.script, project_readers.started, 3),
    Reader("claims", crafted_projects.claims, project_readers.claimed, 3),
    Reader("packages", crafted_projects.installed, project_readers.told, 3),
    Reader("index", crafted_projects.offered, project_readers.resolved, 3),
)
# Memory in MB and CPU seconds for the readers that a page allows more.
ALLOWED = {"report": (128, MOST_CPU_S), "listing": (256, MOST_CPU_S), "follow": (160, MOST_CPU_S),
           "git source": (320, MOST_CPU_S)}  # fmt: skip


def tried(reader, seed):
    """Try one input in a separate process; another process makes the input, so its memory is not counted."""
    with tempfile.TemporaryDirectory(prefix="muster-crafted-", dir=FOLDER) as above:
        folder = Path(above) / "r1"
        size = _apart(lambda: _write(folder, reader.make(random.Random(f"{reader.name} {seed}"))))
        answer = _apart(lambda: _measured(reader, folder, size, seed))
        return answer or Tried(reader.name, seed, size, 0.0, 0.0, "no end, or killed")


def _apart(work):
    """What `work` returns in a process of its own; None if it does not end in time or is killed."""
    gc.collect()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            os.write(writing, pickle.dumps(work()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    answer, until = b"", time.monotonic() + WAITS_S
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        if not (piece := os.read(reading, 1 << 16)):
            break
        answer += piece
    os.close(reading)
    if not answer:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else None


def _write(folder, files):
    folder.mkdir()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return sum(-(-len(data) // 4096) * 4096 for data in files.values())  # their size on a disk


def _measured(reader, folder, size, seed):
    chance = random.Random(f"{seed} {reader.name}")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE + _space(), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (HANG_S, HANG_S + 5))
    wrong, began, before = "", time.process_time(), _memory_mb()
    chance.size, chance.entry = size, ""
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            reader.read(folder, chance)
    except FAULTS:
        pass
    except BaseException as fault:
        last = traceback.extract_tb(fault.__traceback__)[-1]
        wrong = f"{type(fault).__name__} at {Path(last.filename).name}:{last.lineno}: {str(fault)[:80]!a}"
    used, after = time.process_time() - began, _memory_mb()
    if chance.entry:
        wrong = wrong and f"{chance.entry}: {wrong}"
    return Tried(reader.name, seed, chance.size, after - before, used, wrong)


def _memory_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _space():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def plan(count):
    """How many inputs each reader gets."""
    total = sum(reader.weight for reader in READERS)
    return [(reader, max(1, count * reader.weight // total)) for reader in READERS]


def main():
    """Try `--count` inputs. Exit code 1 if one exceeds the budget."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--only", default="")
    options = asked.parse_args()
    bad = 0
    for reader, number in plan(options.count):
        if options.only not in ("", reader.name):
            continue
        results = [tried(reader, f"{options.seed}.{each}") for each in range(number)]
        over = [each for each in results if each.over]
        bad += len(over)
        print(
            f"{reader.name:20} {number:5} inputs  {max(each.memory_mb for each in results):5.0f} MB  "
            f"{max(each.cpu_s for each in results):5.1f} s  {len(over)} beyond the budget",
            flush=True,
        )
        for words, times in Counter(each.over for each in over).most_common(12):
            first = next(each for each in over if each.over == words)
            print(f"    {times:4} x {words}   (seed {first.seed}, {first.size:,} bytes)", flush=True)
    print(f"{bad} beyond the budget")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
