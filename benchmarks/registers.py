"""Who trains is kept in a register: Muster's own, by pysyncobj, beside etcd, on the faults that it is there for.

    apt-get install etcd-server          # or --etcd PATH of its binary
    python -m benchmarks.registers [--etcd PATH] [--times 5]

Three hosts (network namespaces, lab/network.py), each with a disk of its own and a member that proposes ten times a
second and notes what it knows to be held by a majority. The drills: the leader is killed; the leader is cut off from
the others; the leader's disk is full for ten seconds; a stranger who has neither key nor password asks for a change.
etcd runs with its defaults, and with the times of Muster's register (an election after 500 ms).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.figure import spread
from benchmarks.rivals.member import word
from benchmarks.venv import HOME
from lab.network import Lab, kill, missing
from lab.waiting import holds_within

NAMES, PEERS, CLIENTS = ("a", "b", "c"), 2380, 2379
START_S, PATIENCE_S, FULL_S = 30.0, 30.0, 10.0
# The write-ahead log of etcd begins with 64 MB, its database with 16 MB more in a second file at times.
DISK = "200m"
_FAST = ["--heartbeat-interval", "50", "--election-timeout", "500"]
KINDS: dict[str, list[str] | None] = {"Muster's": None, "etcd": [], "etcd, election 500 ms": _FAST}


class Members:
    """Three members of one register. `options`: of etcd; None for Muster's own."""

    def __init__(self, lab: Lab, root: Path, etcd: str, options: list[str] | None) -> None:
        self.lab, self.root, self.etcd, self.options = lab, root, etcd, options
        self.where = {name: f"{host.address}:{PEERS}" for name, host in zip(NAMES, lab.hosts, strict=True)}
        self.token = uuid.uuid4().hex[:8]
        for place in range(3):
            self.disk(place).mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk(place)], check=True)
            self.start(place)

    def disk(self, place: int) -> Path:
        """What this host's member may write to."""
        return self.root / NAMES[place]

    def start(self, place: int) -> None:
        """Start a member, as after its host's boot."""
        host, name = self.lab.hosts[place], NAMES[place]
        if self.options is not None:
            peers = ",".join(f"{each}=http://{where}" for each, where in self.where.items())
            own = f"http://{self.where[name]}"
            line = [self.etcd, "--name", name, "--data-dir", str(self.disk(place) / "data"), *self.options]
            line += ["--listen-peer-urls", own, "--initial-advertise-peer-urls", own, "--initial-cluster", peers]
            line += ["--listen-client-urls", f"http://0.0.0.0:{CLIENTS}", "--initial-cluster-token", self.token]
            line += ["--advertise-client-urls", f"http://{host.address}:{CLIENTS}"]
            with (self.root / f"{name}.log").open("ab") as log:
                host.start(*line, stdout=log, stderr=log)
        kind = "muster" if self.options is None else "etcd"
        line = [sys.executable, "-m", "benchmarks.rivals.member", kind, name, json.dumps(self.where)]
        line += [str(self.disk(place) / "journal"), str(self._notes(place))]
        with (self.root / f"{name}.member").open("ab") as log:
            host.start(*line, cwd=HOME, stdout=log, stderr=log, env={"PYTHONPATH": str(HOME)})

    def held(self, place: int, since: float) -> list[tuple[float, bool]]:
        """When this member has known something to be held, and whether it led."""
        lines = self._notes(place).read_text().splitlines() if self._notes(place).exists() else []
        notes = [(float(line.split()[0]), line.endswith("1")) for line in lines if len(line.split()) == 2]
        return [note for note in notes if note[0] > since]

    def all_hold(self, since: float) -> bool:
        """Whether each member has known something to be held since then."""
        return all(self.held(place, since) for place in range(3))

    def leader(self) -> int:
        """The member that led at last."""
        now = time.time() - 2.0
        led = [place for place in range(3) if any(leads for _, leads in self.held(place, now)[-3:])]
        return led[0] if led else 0

    def memory_mb(self, place: int) -> float:
        """What the member's process itself takes; etcd's without the program that asks it."""
        pids = subprocess.run(["ip", "netns", "pids", self.lab.hosts[place].space], capture_output=True, text=True)
        mark = "etcd" if self.options is not None else "benchmarks.rivals.member"
        for pid in pids.stdout.split():
            line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if Path(line[0]).name == mark or (mark in line and Path(line[0]).name != "sh"):
                status = Path(f"/proc/{pid}/status").read_text()
                return int(status.partition("VmRSS:")[2].split()[0]) / 1024
        return float("nan")

    def _notes(self, place: int) -> Path:
        return self.root / f"{NAMES[place]}.notes"

    def end(self) -> None:
        """End all members, and give their disks back."""
        for host in self.lab.hosts:
            kill(host.space)
        for place in range(3):
            subprocess.run(["umount", "-l", self.disk(place)], check=True)


def main() -> None:
    """Print a row for each drill and register."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--etcd", default=shutil.which("etcd") or "")
    asked.add_argument("--times", type=int, default=5)
    options = asked.parse_args()
    why = missing() or ("" if options.etcd else "there is no etcd: apt-get install etcd-server, or --etcd PATH")
    if why:
        sys.exit(f"error: {why}")
    print("| register | drill | what happened |\n|---|---|---|")
    for kind, own in KINDS.items():
        with _members(options.etcd, own) as members:
            for name, drill in DRILLS.items():
                print(f"| {kind} | {name} | {drill(members, options.times)} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.0f}, etcd of {Path(options.etcd).stat().st_size / 1e6:.0f} MB")


@contextmanager
def _members(etcd: str, options: list[str] | None) -> Iterator[Members]:
    root = HOME / ".cache" / f"registers-{os.getpid()}"
    with Lab(3) as lab:
        root.mkdir(parents=True)
        members = Members(lab, root, etcd, options)
        try:
            if not holds_within(lambda: members.all_hold(time.time() - 1.0), START_S):
                raise RuntimeError(f"not all members hold anything; see {root}")
            yield members
        finally:
            members.end()
            shutil.rmtree(root, ignore_errors=True)


def _cost(members: Members, times: int) -> str:
    began, t = [len(members.held(place, 0.0)) for place in range(3)], time.time()
    time.sleep(5.0)
    counts = [len(members.held(place, 0.0)) - before for place, before in enumerate(began)]
    rate = max(counts) / (time.time() - t)
    return f"{members.memory_mb(members.leader()):.0f} MB at the leader; {rate:.0f} changes a second"


def _leader_killed(members: Members, times: int) -> str:
    after = []
    for _ in range(times):
        lost = members.leader()
        since = time.time()
        kill(members.lab.hosts[lost].space)
        after.append(_others_hold(members, lost, since))
        members.start(lost)
        holds_within(lambda: members.all_hold(time.time() - 1.0), START_S)
        time.sleep(2.0)
    return _said(after, times)


def _leader_cut_off(members: Members, times: int) -> str:
    after, alone = [], 0
    for _ in range(times):
        lost, hosts = members.leader(), members.lab.hosts
        for other in range(3):
            if other != lost:
                members.lab.wire_drops(hosts[lost], hosts[other])
                members.lab.wire_drops(hosts[other], hosts[lost])
        since = time.time()
        after.append(_others_hold(members, lost, since))
        time.sleep(5.0)
        # What was under way when the links were cut may be known a moment later.
        alone += len(members.held(lost, since + 0.3))
        members.lab.on_switch("ebtables", "-F", "FORWARD")
        holds_within(lambda: members.all_hold(time.time() - 1.0), START_S)
        time.sleep(2.0)
    return f"{_said(after, times)}; changes at the side of one: {alone}"


def _disk_full(members: Members, times: int) -> str:
    said = []
    for _ in range(min(times, 2)):
        lost = members.leader()
        since = time.time()
        with suppress(OSError), (members.disk(lost) / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(FULL_S)
        gaps = [_longest_pause(members, place, since) for place in range(3)]
        (members.disk(lost) / "filler").unlink()
        free = time.time()
        back = holds_within(lambda: bool(members.held(lost, free + 0.3)), 10.0)  # noqa: B023
        said.append(
            f"longest pause of the others {max(gap for place, gap in enumerate(gaps) if place != lost):.1f} s, "
            f"of its own {gaps[lost]:.1f} s; {'goes on' if back else 'its member is gone'} once there is room"
        )
        if not back:
            kill(members.lab.hosts[lost].space)
            members.start(lost)
        holds_within(lambda: members.all_hold(time.time() - 1.0), START_S)
    return "; then ".join(said)


def _stranger(members: Members, times: int) -> str:
    """Somebody on the network without a key: what is taken. Only etcd's has ports for clients."""
    if members.options is None:
        return f"a member with another key, on each of the three ports: {_wrong_key(members)}"
    before = _client(members, "kv/put", {"key": word("epoch"), "value": word("mine")})
    user = {"name": "root", "password": "secret"}
    _client(members, "auth/user/add", user)
    _client(members, "auth/role/add", {"name": "root"})
    _client(members, "auth/user/grant", {"user": "root", "role": "root"})
    _client(members, "auth/enable", {})
    after = _client(members, "kv/put", {"key": word("epoch"), "value": word("mine")})
    peer = members.lab.hosts[1].run("curl", "-sm", "3", f"http://{members.where['a']}/members")
    peers = "answer" if "peerURLs" in peer.stdout else "do not answer"
    return f"without a password: a change is {before}; with one: {after}, and the members' ports {peers} to anybody"


def _client(members: Members, path: str, of: dict[str, object]) -> str:
    """Ask a member from another host: `taken`, or `refused` with its words."""
    at = f"http://{members.lab.hosts[0].address}:{CLIENTS}/v3/{path}"
    done = members.lab.hosts[1].run("curl", "-sm", "3", "-d", json.dumps(of), at)
    answer = json.loads(done.stdout or '{"error": "no answer"}')
    return f"refused ({answer['error']})" if "error" in answer else "taken"


def _wrong_key(members: Members) -> str:
    """A third member's place is taken by somebody with another key, who proposes."""
    lost, since = (members.leader() + 1) % 3, time.time()
    host = members.lab.hosts[lost]
    kill(host.space)
    program = (
        "import json, sys, time; from pathlib import Path; from trainer.node.register import Register\n"
        "r = Register(sys.argv[1], json.loads(sys.argv[2]), 'another key', Path(sys.argv[3]))\n"
        "for n in range(50): r.form(r.epoch.number + 1, ('c',)); time.sleep(0.1)\n"
        "print(r.epoch.number)"
    )
    line = [sys.executable, "-c", program, NAMES[lost], json.dumps(members.where), str(members.root / "strange")]
    done = host.run("env", f"PYTHONPATH={HOME}", *line)
    go_on = all(members.held(place, since + 4.0) for place in range(3) if place != lost)
    members.start(lost)
    taken = "nothing is taken" if done.stdout.strip() == "0" else f"it hears of epoch {done.stdout} {done.stderr}"
    return f"{taken}; the two others {'go on' if go_on else 'stand'}"


DRILLS: dict[str, Callable[[Members, int], str]] = {
    "nothing": _cost,
    "kill -9 of the leader's host": _leader_killed,
    "the leader cut off from both others": _leader_cut_off,
    "the leader's disk full for 10 s": _disk_full,
    "a stranger": _stranger,
}


def _others_hold(members: Members, lost: int, since: float) -> float:
    """Seconds until both others know of something that was held without the lost one."""
    others = [place for place in range(3) if place != lost]
    # What was under way is known within a moment.
    holds_within(lambda: all(members.held(place, since + 0.3) for place in others), PATIENCE_S)
    times = [members.held(place, since + 0.3) for place in others]
    return max(held[0][0] for held in times) - since if all(times) else float("nan")


def _longest_pause(members: Members, place: int, since: float) -> float:
    times = [since, *(t for t, _ in members.held(place, since)), time.time()]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def _said(after: list[float], times: int) -> str:
    lived = [each for each in after if each == each]
    return f"{len(lived)} of {times}, after {spread(lived)} s" if lived else f"0 of {times}"


if __name__ == "__main__":
    main()
