"""Rehearse a run where it will run: threads, the folders it writes to, the data loader, a rendezvous, a sum.

`python -m muster.trainer.node rehearsal` does it in a node, before the node starts, with the variables of
docs/develop/contract.md. It prints a JSON line for each phase, and exits with 0 if everything succeeded, else with 1.
All nodes of the run must do it at the same time.

The control side sends this file, with rehearsal_steps.py in it, as text into any image that has torch. It requests one
phase after the other on standard input: `alone`, then `together` (deploy/preflight/probe/rehearsal.py). So this file
imports nothing else of Muster's, and Python 3.8 can read it. This process imports torch once and forks the ranks, which
then cost next to nothing. A rank reports each step before it begins the step: if the rank dies, this process knows in
which step.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import gc
import json
import os
import re
import select
import signal
import sys
import time

from .rehearsal_steps import (
    THREADS,
    WORKERS,
    add_up,
    meet,
    try_device,
    try_folder,
    try_layer,
    try_loader,
    try_script,
    try_threads,
    try_view,
)

# A rank that waits for others gives up before this process ends it, because the rank's own error says more.
ALONE_S, WAIT_S, GRACE_S = 60.0, 30.0, 10.0
MB = 1_000_000
LONG, MOST_WORDS, MOST_LINES = 20 * MB, 256 << 10, 80
# NCCL's log lines that show which transport it uses (deploy/preflight/nccl_log.py reads them).
NCCL = "NCCL INFO"
TELLING = re.compile(
    r" via (?:P2P|SHM|NET|COLLNET|direct shared)|(?:Using|NET/IB:) \[0\]|Using (?:n|internal N)etwork|"
    r"No device found|libibverbs|CCL version|NCCL_(?:IB_DISABLE|NET) set|optimal provider|"
    r"output empty|Selected Provider|GPU Direct RDMA|disabling GDR|NET : Using|getinfo\(\) call failed| WARN "
)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def read_line():
    """The next line of the input; ends this process when the input ends."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(9)
        line += piece
    return json.loads(line.decode())


class Rank:
    """One rank, in its own process: it reports through `say`, and begins the second phase when `go` is readable."""

    def __init__(self, plan, local, say, go):
        self.plan, self.local, self.say, self.go = plan, local, say, go

    def step(self, at, name, work, *words):
        """Report the step, by its key and in words, then do it."""
        self.say({"at": at, "step": name, "folder": words[0] if at == "write" else ""})
        return work(*words)

    def run(self):
        """Run both phases. The last report is a finished phase, or an error."""
        try:
            self.alone()
            self.say({"done": "alone"})
            if os.read(self.go, 1):
                self.together()
        except BaseException as failed:
            self.say(dict(getattr(failed, "facts", {}), error=words_of(failed)))

    def alone(self):
        """The phase without other nodes.

        Only one rank of a node writes and loads, because all share disk and memory.
        """
        if self.local == 0:
            self.step("start", "start %d threads" % THREADS, try_threads)
            if self.plan["expect"]:
                self.step(
                    "see", "see the run's folder", try_view, os.path.join(self.plan["folder"], self.plan["expect"])
                )
            self.step("write", "write to %s" % self.plan["folder"], try_folder, self.plan["folder"])
            self.step("read", "read a script in %s" % self.plan["folder"], try_script, self.plan["folder"])
            for folder in self.plan["folders"]:
                try:
                    self.step("write", "write to %s" % folder, try_folder, folder)
                except OSError as failed:
                    self.say({"warning": [folder, failed.strerror or str(failed)]})
            self.step("load", "load data with %d workers" % WORKERS, try_loader)
            self.step("train", "train a layer on the CPU", try_layer)
        if self.plan["backend"] == "nccl":
            self.step("compute", "compute on GPU %d" % self.local, try_device, self.local)

    def together(self):
        """The phase that all ranks do together."""
        import torch
        import torch.distributed as dist

        wait_s = self.plan["wait"]
        os.environ.setdefault("NCCL_DEBUG", "INFO")
        store, rank, world = self.step("meet", "meet", meet, self.plan, self.local, wait_s)
        limit, backend = datetime.timedelta(seconds=wait_s), self.plan["backend"]
        grouped = dist.PrefixStore("rehearsal", store)
        device = "cuda" if backend == "nccl" else "cpu"
        self.step(
            "form",
            "form a group (%s)" % backend,
            lambda: dist.init_process_group(backend, store=grouped, rank=rank, world_size=world, timeout=limit),
        )
        self.step("sum", "all_reduce", add_up, torch.ones(1, device=device), world)
        long, mb = torch.ones(max(1, self.plan["bytes"] // 4), device=device), round(self.plan["bytes"] / MB)
        seconds = self.step("sum", "all_reduce of %d MB" % mb, add_up, long, world)
        # No rank leaves before all are done; rank 0, which hosts the store, leaves last.
        store.add("ended", 1)
        while rank == 0 and store.add("ended", 0) < world:
            time.sleep(0.01)
        self.say({"done": "together", "seconds": round(seconds, 4), "mb": mb, "world": world})


def words_of(failed):
    """An error in one line; for a data loader's error, also why its worker died, or the worker's own error."""
    shown = []
    for each in (failed, failed.__cause__ or failed.__context__):
        lines = str(each or "").strip().splitlines()
        if lines:
            shown.append(lines[-1] if "Original Traceback" in str(each) else lines[0])
    return ("%s: %s" % (type(failed).__name__, "; ".join(shown)))[:500]


def looked_at(at, folder, words, killer=0):
    """What tells apart the usual causes of an ambiguous error: keys of facts for programs, and it all in brackets."""
    closed = re.search("ermission denied: '(.*)/", words)
    looked, folder = [], closed[1] if closed else folder
    if (closed or at == "write") and os.path.isdir(folder):
        looked = folder_now(folder)
    elif at == "load" and (killer == signal.SIGBUS or re.search("(?i)bus|space|shared memory", words)):
        room = os.statvfs("/dev/shm")
        free, size = (n * room.f_frsize // MB for n in (room.f_bavail, room.f_blocks))
        looked = [("shm_full" * (free < 8), "/dev/shm: %d of %d MB free" % (free, size))]
    if killer == signal.SIGKILL or re.search("(?i)killed|memory", words):
        looked += counted(
            "memory.events", "memory/memory.oom_control", "oom_kill", "the kernel has killed %d for memory"
        )
    if re.search("(?i)thread|temporarily", words):
        looked += counted("pids.events", "pids/pids.events", "max", "the limit of processes was reached %d times")
    shown = "; ".join(text for _, text in looked)
    return [key for key, _ in looked if key], shown and " [%s]" % shown


def folder_now(folder):
    """The state of a folder: free space and inodes, owner, mode, and whether it can be written. As `looked_at`."""
    room, of = os.statvfs(folder), os.stat(folder)
    mb, inodes = room.f_bavail * room.f_frsize // MB, room.f_favail
    looked = [("", folder), ("disk_full" * (mb < 2), "%d MB free" % mb)]
    looked += [("no_inodes" * (not inodes), "%d inodes free" % inodes)] * bool(room.f_files)
    looked += [("", "of uid %d, mode %o, this is uid %d" % (of.st_uid, of.st_mode & 0o7777, os.geteuid()))]
    looked += [("read_only", "mounted read-only")] * bool(room.f_flag & os.ST_RDONLY)
    return looked + [("no_right", "no right to write there")] * (not os.access(folder, os.W_OK | os.X_OK))


def counted(new, old, name, words):
    """A counter of this container's control group, in words, with its name as key if it is not 0; [] if unreadable."""
    for path in (new, old):
        try:
            with open("/sys/fs/cgroup/" + path) as file:
                number = int(dict(line.split(" ", 1) for line in file)[name])
                return [(name * bool(number), words % number)]
        except (OSError, KeyError, ValueError):
            continue
    return []


class Child:
    """A rank, as its parent process sees it."""

    def __init__(self, plan, local):
        self.local, self.step, self.done, self.error = local, "", "", ""
        self.status, self.rest, self.extra, self.warnings = None, b"", {}, []
        self.pipe, theirs = os.pipe()
        go, self.go = os.pipe()
        try:
            self.words = os.memfd_create("words")
        # some seccomp profiles forbid it, and a run does not need it: only a rank's last output is lost
        except OSError:
            self.words = os.open(os.devnull, os.O_RDWR)
        self.pid = os.fork()
        if not self.pid:
            end_with_parent()
            os.dup2(self.words, 1)
            os.dup2(self.words, 2)
            os.close(self.go)
            Rank(plan, local, lambda what: os.write(theirs, (json.dumps(what) + "\n").encode()), go).run()
            os._exit(0)
        os.close(theirs)
        os.close(go)

    def hear(self):
        """Read the rank's reports; at the end of its output, read its exit status."""
        piece = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            self.step, self.done = message.pop("step", self.step), message.pop("done", self.done)
            self.error = message.pop("error", self.error)
            self.warnings += [message.pop("warning")] if "warning" in message else []
            self.extra.update(message)
        if not piece:
            self.status = os.waitpid(self.pid, 0)[1]

    def over(self, phase):
        """Whether the rank has finished the phase, or will never finish it."""
        return self.done == phase or bool(self.error) or self.status is not None

    def end(self):
        """Kill the rank, whatever it is doing."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)

    def outcome(self, phase):
        """The result of the phase for this rank: with `error`, `signal` or `code` if it failed."""
        result = dict(self.extra, local=self.local, step=self.step)
        place = result.get("at", ""), result.pop("folder", "")
        size = os.fstat(self.words).st_size
        lines = os.pread(self.words, MOST_WORDS, max(0, size - MOST_WORDS)).decode(errors="replace").splitlines()
        telling = dict.fromkeys(
            line.partition(NCCL)[2].strip()[:400] or line[:400] for line in lines if TELLING.search(line)
        )
        if telling:
            result["nccl"] = list(telling)[:MOST_LINES]
        if self.done == phase:
            return dict(result, right=True)
        if self.error:
            result["error"] = self.error
        elif self.status is None:
            result.update(error="TimeoutError: it did not end in time", seen=["late"])
        elif os.WIFSIGNALED(self.status):
            result["signal"] = os.WTERMSIG(self.status)
        else:
            result["code"] = os.WEXITSTATUS(self.status)
        seen, more = looked_at(*place, self.error, result.get("signal", 0))
        if self.error:
            result["error"] += more
        own = [line.strip() for line in lines if line.strip() and NCCL not in line]
        result["seen"] = result.get("seen", []) + seen
        return dict(result, words=(own[-1][: 500 - len(more)] if own else "") + more)


def phase(children, name, limit_s):
    """Wait until all ranks have finished a phase; returns their outcomes. Ends this process when its input ends."""
    end = time.monotonic() + limit_s
    while True:
        waiting = {child.pipe: child for child in children if not child.over(name)}
        left = end - time.monotonic()
        if not waiting or left <= 0:
            break
        for pipe in select.select([*waiting, *LISTENS], [], [], left)[0]:
            if pipe in waiting:
                waiting[pipe].hear()
            elif not os.read(pipe, 1 << 16):
                os._exit(9)
    return [child.outcome(name) for child in children]


# Descriptors that reach their end when the other side has stopped listening.
LISTENS = []


def sees_gpus():
    """Whether torch sees GPUs. A child process checks: a process that has checked cannot fork ranks that use them."""
    import torch

    child = os.fork()
    if not child:
        os._exit(0 if torch.cuda.is_available() else 1)
    return os.waitpid(child, 0)[1] == 0


def plan_of(asked, environment):
    """The plan for this node: from the request, and from the variables that a node of the run has."""
    backend = asked.get("backend") or ("nccl" if sees_gpus() else "gloo")
    ranks = environment.get("MUSTER_LAUNCHER_RANKS") or environment.get("PET_NPROC_PER_NODE") or "1"
    return {
        "backend": backend,
        "endpoint": environment.get("PET_RDZV_ENDPOINT") or "127.0.0.1:29500",
        "node": int(environment.get("PET_NODE_RANK") or 0),
        "nodes": int(environment.get("PET_NNODES") or 1),
        "ranks": int(ranks),
        "wait": float(asked.get("wait", WAIT_S)),
        "bytes": int(asked.get("bytes", LONG)),
        "folder": environment.get("MUSTER_RUN_DIR") or ".",
        "folders": asked.get("folders", []),
        "expect": asked.get("expect", ""),
    }


def rehearse(asked, next_phase):
    """Yield the answer of each phase; `next_phase` is called before the second phase, and may return False to end."""
    os.environ.update(asked.get("environment", {}))
    # the import makes half a million objects and no garbage: searching for garbage takes a sixth of its time
    gc.disable()
    try:
        import torch
        import torch.distributed
    except Exception as failed:
        absent = isinstance(failed, ModuleNotFoundError) and failed.name == "torch"
        yield {"phase": "alone", "torch": "" if absent else "?", "error": words_of(failed)}
        return
    # If a container hides the processor's type, this crashes a process that imported torch, but no fork of it. A rank
    # of a run is such a process; the ranks of a rehearsal are forks. So this process tries it.
    torch.empty((), dtype=torch.int64).random_()
    gc.freeze()  # a collection would write to every page that the ranks share
    gc.enable()
    plan = plan_of(asked, os.environ)
    children = [Child(plan, local) for local in range(plan["ranks"])]
    try:
        outcomes = phase(children, "alone", ALONE_S)
        warnings = [warning for child in children for warning in child.warnings]
        yield {"phase": "alone", "torch": torch.__version__, "ranks": outcomes, "warnings": warnings}
        if not all(outcome.get("right") for outcome in outcomes) or not next_phase():
            return
        for child in children:
            # the rank was killed meanwhile: the result of its phase shows how
            with contextlib.suppress(BrokenPipeError):
                os.write(child.go, b"!")
        outcomes = phase(children, "together", plan["wait"] + GRACE_S)
        yield {"phase": "together", "torch": torch.__version__, "ranks": outcomes}
    finally:
        for child in children:
            child.end()


def follow():
    """Execute the control side's requests; requests and answers are JSON lines."""
    answer = os.dup(1)
    os.dup2(2, 1)
    asked = read_line()
    LISTENS.append(0)
    for result in rehearse(asked, read_line):
        os.write(answer, (json.dumps(result) + "\n").encode())
    os._exit(0)


def main():
    """In a node: run both phases, with the node's own variables. Returns the exit code."""
    right = True
    for result in rehearse({}, lambda: True):
        print(json.dumps(result), flush=True)
        right = right and bool(result.get("ranks")) and all(rank.get("right") for rank in result["ranks"])
    return 0 if right else 1


if __name__ == "__main__":
    # When the control side sends this file as text, it runs as the program of `python -c`.
    sys.exit(follow() if sys.argv[:1] == ["-c"] else main())
