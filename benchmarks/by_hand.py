"""Scripts as forty researchers write them: the same by torchrun typed by hand, by `muster up`, and on two hosts?

    python -m benchmarks.by_hand [--quick]
    ONLY="files,a pipe" GIVEN=FOLDER AT_ONCE=2 KEEP=FOLDER python -m benchmarks.by_hand
    ON= python -m benchmarks.by_hand                  # not on hosts; ON=a,b: on these, as MUSTER_SSH_CONFIG has them

The scripts of benchmarks/researchers/ run on two nodes, most of them one after the other in one process: by hand, here
(the nodes share a folder) and apart (each has its own); by `muster up`; by `muster deploy` on a rack of two hosts, with
a fetch. Compared with its way by hand are whether it ends with 0, the lines that the script calls its result, in the
ranks' logs and on the console, and path and content of every file that it wrote: 0 lost. GIVEN has more scripts.

Then the numbers: what the view, `compare`, the page, `runs --json` and the events say of step, loss and pace, beside
what rank 0 prints of its own training. Equal, or dated: a loss that is shown with a step is the loss of that step, and
one without is the last. `status --json` is asked while a case runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks, shown
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME
from lab.ports import free_port

FAB, LIMIT_S = HOME / ".venv" / "bin" / "fab", 420
SCRIPTS = HOME / "benchmarks" / "researchers"
AT_ONCE = int(os.environ.get("AT_ONCE", "2"))


@dataclass(frozen=True)
class Case:
    """What is typed, for so many `ranks` on each node.

    `restarts` after a failure; `shared`: it finds what another host wrote, as in one folder; `counted`: only `muster
    up`, for the numbers.
    """

    name: str
    command: str
    ranks: int = 1
    nodes: int = 2
    restarts: int = 0
    shared: bool = False
    counted: bool = False

    @property
    def scripts(self) -> int:
        """How many the command names."""
        return max(1, len(self.command.split(".py ")[-1].split())) if ".py " in self.command else 1


# These follow each other in one process, with one rank on each node or two.
CHAINS = (
    Case("groups", "torchrun groups.py pipeline uneven averaging zero own_store"),
    Case("meshes", "torchrun groups.py some_ranks hsdp tensor_parallel", 2),
    Case(
        "files",
        "torchrun files.py home odd_names changes_folder keeps_two dcp_async dcp_alone tensorboard tables settings "
        "at_the_end",
    ),
    Case(
        "loops",
        "torchrun loops.py evaluates_on_rank_0 evaluates_elsewhere formats bar stops_early two_optimizers closures "
        "rises no_loss hooks workers spawns signals",
    ),
)
ALONE = (
    *(Case(name, f"torchrun loops.py {name}") for name in ("fails", "leaves", "nan", "steady")),
    *(Case(name, f"torchrun groups.py {name}") for name in ("served", "tries_again")),
    Case("dcp_save", "torchrun files.py dcp_save", 2),
    Case("a pipe", "bash pipe.sh", 2),
    Case("two stages", "bash stages.sh"),
    Case("plain python", "python loops.py fast", nodes=1),
    Case("a module", "torchrun -m deep.er.train three_steps"),
)
GIVEN = (
    Case("subgroup", "torchrun subgroup.py", 2),
    Case("solo_rank", "python solo_rank.py", nodes=1),
    Case("cache_results", "torchrun cache_results.py", restarts=1, shared=True),
    Case("own_resume_flag", "torchrun own_resume_flag.py", restarts=1, shared=True),
    *(Case(name, f"torchrun {name}.py") for name in ("dcp_init", "slow_eval", "missing_lib")),
)
# Each alone, for its numbers.
COUNTED = (
    *(f"groups.py {name}" for name in ("hsdp", "uneven")),
    *(f"files.py {name}" for name in ("tables", "tensorboard")),
    *(f"loops.py {name}" for name in ("formats", "bar", "stops_early", "two_optimizers", "closures", "rises")),
    *(f"loops.py {name}" for name in ("hooks", "workers")),
)
_LOOKED_AT = "steady"  # by `status --json`, while it runs
_ON_HOSTS = threading.Lock()
PIPE = "set -o pipefail\ntorchrun loops.py accumulates 2>&1 | tee out.log\n"
STAGES = "torchrun loops.py ema && torchrun files.py keeps_two\n"
# Numbers of torch's own, random or of the time, are in these.
_CHANGES = re.compile(r"\.metadata$|tfevents|out\.log$")
_NOT_WRITTEN = re.compile(r"__pycache__|^home/\.(?:cache|local/state)/(?:muster|torch|pip)/")


@dataclass
class Ran:
    """`results`, sorted; `files`: pairs of path and digest; `truth`: losses and times of rank 0's own training."""

    code: int
    results: list[str]
    files: set[tuple[str, str]]
    output: str = ""
    console: Counter[str] = field(default_factory=Counter)
    truth: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    looks: list[shown.Look] = field(default_factory=list)


# A case, what was judged, and what is wrong with it.
Judged = tuple[Case, str, list[str]]


def cases() -> list[Case]:
    """All of this repository, then those that GIVEN has."""
    folder = Path(os.environ.get("GIVEN", "/nonexistent"))
    given = [case for case in GIVEN if (folder / f"{case.name}.py").exists()]
    counted = [Case(name, f"torchrun {name}", 2 if "hsdp" in name else 1, counted=True) for name in COUNTED]
    return [*CHAINS, *ALONE, *given, *counted]


def project(folder: Path) -> None:
    """The scripts, as a researcher has them in a folder."""
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__*"))
    if given := os.environ.get("GIVEN"):
        for path in Path(given).glob("*.py"):
            shutil.copy(path, folder)
    for name, text in {"pipe.sh": PIPE, "stages.sh": STAGES}.items():
        (folder / name).write_text(text)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "train.py").write_text("from common import run\nimport loops\nrun(vars(loops))\n")


def by_hand(case: Case, base: Path, apart: bool) -> Ran:
    """torchrun, typed by somebody who knows addresses. `apart`: one for each node, and no folder is shared."""
    port, running, places, count = free_port(), [], [], case.nodes if apart else 1
    for node in range(count):
        place = base / (f"node-{node}" if apart else "node")
        if not place.exists():
            project(place / "work")
            (place / "home").mkdir()
            places.append(place)
        given = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_", "XDG_"))}
        given |= {"HOME": str(place / "home"), "PATH": f"{FAB.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        given |= {"PYTHONDONTWRITEBYTECODE": "1", "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
        given |= {"PET_NPROC_PER_NODE": str(case.ranks * case.nodes // count)}
        given |= {"PET_NNODES": str(count), "PET_NODE_RANK": str(node), "PET_MASTER_ADDR": "127.0.0.1"}
        given |= {"PET_MASTER_PORT": str(port), "PET_MAX_RESTARTS": str(case.restarts)}
        with (base / f"console-{node}").open("wb") as out:
            words = shlex.split(case.command)
            running.append(subprocess.Popen(words, cwd=place / "work", env=given, stdout=out, stderr=out))
    try:
        codes = [process.wait(timeout=LIMIT_S) for process in running]
    finally:
        for process in running:
            process.kill()
    output = "\n".join((base / f"console-{node}").read_text() for node in range(count))
    sent = _sent(base)
    files = {pair for place in places for pair in _digests(place) if sent.get(pair[0]) != pair[1]}
    return Ran(int(any(codes)), _results(output), files, output, truth=_truth(output), folder=base)


def muster(case: Case, base: Path, hosts: Sequence[str] = ()) -> Ran:
    """`muster up`, or `muster deploy` and a fetch."""
    project(folder := base / "project")
    where = ["deploy", "--hosts", ",".join(hosts[: case.nodes])] if hosts else ["up", "--backend", "processes"]
    where += [] if hosts or case.nodes == 1 else ["--workers", str(case.nodes - 1)]
    where += ["--rank", "all", "--requirements", "no", "--restarts", str(case.restarts)]
    where += ["--nproc", str(case.ranks)] if case.ranks > 1 else []
    run = f"{re.sub('[^a-z0-9]', '-', case.name)}-{os.getpid()}-{int(bool(hosts))}"
    looks, status = list[shown.Look](), ("status", "--hosts", ",".join(hosts), "--run", run, "--json")
    with ExitStack() as stack:
        if hosts:  # a deploy locks them until its run begins
            stack.enter_context(_ON_HOSTS)
        if hosts and case.name == _LOOKED_AT:
            stack.enter_context(shown.looking(looks, partial(fab, folder, *status)))
        done = fab(folder, *where, "--run", run, "--", *shlex.split(case.command))
    if hosts:
        fetched = fab(folder, "fetch", "--hosts", ",".join(hosts[: case.nodes]), "--run", run)
        done.stderr += fetched.stderr
    at = folder / "runs" / run
    logs = "\n".join(path.read_text(errors="replace") for path in sorted(at.rglob("logs/rank-*.log")))
    sent = _sent(base)
    files = {pair for root in (at, *at.glob("hosts/*")) for pair in _digests(root) if sent.get(pair[0]) != pair[1]}
    output = done.stdout + done.stderr
    (base / "console").write_text(output)
    return Ran(done.returncode, _results(logs), files, output, Counter(_results(output)), _truth(logs), at, looks)


def fab(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of Muster's, typed in a folder."""
    path = f"{FAB.parent}:{os.environ['PATH']}"
    line = [FAB, "--search-root", HOME, *words]
    given = {**os.environ, "PATH": path}
    return subprocess.run(line, cwd=folder, env=given, capture_output=True, text=True, timeout=LIMIT_S)


def _sent(base: Path) -> dict[str, str]:
    """Path and digest of the files that are no result, as they are the project's own."""
    project(base / "sent" / "work")
    return dict(_digests(base / "sent"))


def _lines(output: str) -> list[str]:
    return re.split(r"[\r\n]+", output)


def _results(output: str) -> list[str]:
    found = (re.search(r"result \d+ .*", line) for line in _lines(output))
    return sorted(match[0].rstrip() for match in found if match)


def _truth(output: str) -> dict[str, Any]:
    found = [match[1] for line in _lines(output) if (match := re.search(r"truth (\{.*\})", line))]
    return json.loads(found[-1]) if found else {}


def _digests(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir() or _NOT_WRITTEN.search(name):
            continue
        name = re.sub(r"tfevents\..*", "tfevents", name)
        if path.is_symlink():
            yield name, f"-> {os.readlink(path)}"
        else:
            yield name, "" if _CHANGES.search(name) else hashlib.sha256(path.read_bytes()).hexdigest()


def differ(case: Case, hand: Ran, ours: Ran) -> list[str]:
    """What is not as by hand; a file that Muster itself writes beside `work` and `home` is none of the script's."""
    if case in GIVEN:  # without a seed: no two starts write the same
        paths = {name for name, _ in ours.files}
        lost = sorted(name for name, _ in hand.files if name not in paths)
        code = 0 if case.restarts else hand.code  # torchrun by hand does not survive each restart
        ended = [] if (ours.code == 0) == (code == 0) else [f"code {ours.code}, by hand {hand.code}"]
        return ended + [f"files lost: {lost}"] * bool(lost)
    words = [] if (hand.code == 0) == (ours.code == 0) else [f"code {ours.code}, by hand {hand.code}"]
    if hand.results != ours.results:
        lost, more = Counter(hand.results) - Counter(ours.results), Counter(ours.results) - Counter(hand.results)
        words.append(f"results: not {sorted(lost)[:2]}, but {sorted(more)[:2]}")
    if missing := Counter(hand.results) - ours.console:
        words.append(f"not on the console: {sorted(missing)[:2]}")
    # A fetch copies no link, and says so: its target comes under its own name.
    named = {(name, at) for name, at in hand.files if at.startswith("-> ") and f"{name}' is a link" in ours.output}
    if lost_files := hand.files - ours.files - named:
        words.append(f"files lost: {sorted(name for name, _ in lost_files)[:4]}")
    of_script = {(name, digest) for name, digest in ours.files if name.startswith(("work/", "home/"))}
    if more_files := of_script - hand.files:
        words.append(f"files more: {sorted(name for name, _ in more_files)[:4]}")
    return words


def compared(case: Case, scratch: Path, hosts: Sequence[str]) -> list[Judged]:
    """For each way: what is not the same; then the same of its numbers."""
    base, hands, judged = scratch / re.sub("[^a-z0-9]", "-", case.name), dict[str, Ran](), list[Judged]()
    for way in ("up", "hosts") if hosts and not case.counted else ("up",):
        faults, numbers, known = list[str](), list[str](), dict[str, Any]()
        # Apart, a script may do other things; and typed by hand, gloo's ranks abort at their end at times.
        typed = ["here", *["apart"] * (way == "hosts" and not case.shared), "here again"] if not case.counted else []
        try:
            ours = muster(case, base / way, hosts if way == "hosts" else ())
            for how in typed:
                if how not in hands:
                    hands[how] = by_hand(case, base / how, how == "apart")
                if not (faults := differ(case, hands[how], ours)):
                    break
            known = ours.truth if case.scripts == 1 and not case.restarts else {}
            numbers = shown.faults(ours.folder, ours.output, known, partial(fab, base / way / "project"))
            numbers += shown.status_faults(ours.looks, known) if ours.looks else []
        except (subprocess.TimeoutExpired, OSError, ValueError, LookupError) as fault:
            faults = [f"{type(fault).__name__}: {fault}"[:300]]
        say(f"{case.name}, {way}: {'; '.join(faults) or 'the same'}; numbers: {'; '.join(numbers) or 'equal or dated'}")
        judged += [] if case.counted and not faults else [(case, f"{way}: scripts as by hand", faults)]
        judged += [(case, f"{way}: numbers equal or dated", numbers)] if known else []
    return judged


def measure(quick: bool) -> dict[str, Any]:
    """How many cases are the same each way, and of how many the numbers are equal or dated."""
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    chosen = [case for case in cases() if not only or case.name in only][:: 6 if quick else 1]
    with ExitStack() as stack:
        scratch = Path(os.environ["KEEP"]) if "KEEP" in os.environ else stack.enter_context(nodes.scratch())
        hosts = tuple(os.environ.get("ON", "").split(",")) if "ON" in os.environ else None
        hosts = stack.enter_context(racks.rack(2, "classic")).names if hosts is None else tuple(filter(None, hosts))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            judged = [row for rows in threads.map(lambda case: compared(case, scratch, hosts), chosen) for row in rows]
    rows = []
    for what in dict.fromkeys(what for _, what, _ in judged):
        of = [(case.scripts, faults) for case, its, faults in judged if its == what]
        good, count = sum(scripts for scripts, faults in of if not faults), sum(scripts for scripts, _ in of)
        rows.append(Row(what, f"{good} of {count}", "", "", "all", good == count))
    return result(rows, [f"{case.name}, {what}: {'; '.join(faults)}" for case, what, faults in judged if faults])


if __name__ == "__main__":
    alone(measure, __doc__)
