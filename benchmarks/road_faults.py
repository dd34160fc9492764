"""What a push that is cut sends again and leaves behind, and who gets nothing of it.

    python -m benchmarks.road_faults [cuts|refused] [--rounds 4]

`cuts`: 20 MB to four hosts; at a random moment the control side is killed or gets Ctrl-C, a host in the middle of the
chain reboots, or its network or the link to its neighbour drops all. Then a push goes on. The hosts are those of
benchmarks/road.py; a reboot ends all that runs there and empties its /dev/shm. `refused`: while a push goes on, its
servers are asked by a neighbour, by a host of another push, and by its own hosts for what it has not; and a host of it
changes what it passes on.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figure import Row, result, say, stop_like_ctrl_c, table
from benchmarks.road import field, fill, inside, left, sending, serve
from lab import network
from lab.network import Host, Lab
from lab.waiting import until

HOSTS, MEGABYTES = 4, 20
CUTS = ("the control side is killed", "Ctrl-C", "a host reboots", "a host's network", "a link between hosts")
MEMORY = Path("/dev/shm")
# Bytes of what a server says first.
_GREETING = len("muster \n") + 32


@contextlib.contextmanager
def rig(count: int) -> Iterator[tuple[Lab, Path]]:
    """The hosts, and the folder of their homes."""
    with field(count) as (lab, folder):
        sweep(lab)
        yield lab, folder
    sweep(lab)


def sweep(lab: Lab) -> None:
    """Remove what a laboratory leaves whose every process was killed; the next push on such a host would."""
    for host in lab.hosts[1:]:
        for place in keys(host):
            if not psutil.pid_exists(int(place.name.split("-")[-2])):
                shutil.rmtree(place)


def running(folder: Path, host: Host) -> list[list[str]]:
    """The words of what runs on a host for a push."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("HOME") == str(folder / host.name):
                found.append(process.cmdline())
    return found


def keys(host: Host) -> list[Path]:
    """The folders of keys of pushes on a host: all hosts have this machine's memory, each by its name."""
    return list(MEMORY.glob(f"muster-road-{host.name}-*"))


def middle(lab: Lab, folder: Path) -> Host:
    """A host that gets from another one and passes on; any, where none does."""
    hosts = []
    for host in lab.hosts[1:]:
        lines = [" ".join(words) for words in running(folder, host)]
        if any("ssh -F none" in line for line in lines) and any("/give" in line for line in lines):
            hosts.append(host)
    return random.choice(hosts or lab.hosts[1:])


def neighbours(lab: Lab, folder: Path, host: Host) -> list[str]:
    """The addresses of the hosts that it gets from."""
    words = [word for line in running(folder, host) if line[:3] == ["ssh", "-F", "none"] for word in line]
    return [other.address for other in lab.hosts[1:] if other.address in words]


def cut(lab: Lab, folder: Path, what: str, process: subprocess.Popen[str]) -> Callable[[], None]:
    """Do it; returns what mends it."""
    if what in CUTS[:2]:
        process.send_signal(signal.SIGKILL if what == CUTS[0] else signal.SIGINT)
        return lambda: None
    host = middle(lab, folder)
    if what == "a host reboots":
        network.kill(host.space)
        for place in keys(host):
            shutil.rmtree(place, ignore_errors=True)
        return lambda: serve(host, folder)
    rules = ["INPUT -j DROP", "OUTPUT -j DROP"]
    if what == "a link between hosts":
        near = neighbours(lab, folder, host) or [next(each.address for each in lab.hosts[1:] if each is not host)]
        rules = [f"INPUT -s {address} -j DROP" for address in near]
    host.firewall(*rules, families="4")
    return lambda: host_opens(host)


def host_opens(host: Host) -> None:
    """Nothing is dropped there any more."""
    network.must("ip", "netns", "exec", host.space, "iptables", "-w", "-F")


def remains(lab: Lab, folder: Path) -> list[str]:
    """What of a push is on the hosts beside pieces: processes, folders of keys, ports."""
    found = []
    for host in lab.hosts[1:]:
        found += [f"{host.name}: {words}" for words in running(folder, host)]
        found += [f"{host.name}: {place}" for place in keys(host)]
        listening = network.must("ip", "netns", "exec", host.space, "ss", "-Hltn")
        found += [f"{host.name}: {line}" for line in listening.splitlines() if ":298" in line]
    return found


def gone(lab: Lab, folder: Path, within_s: float) -> float:
    """The seconds until nothing of a push is on the hosts but pieces. Raises RuntimeError."""
    began = time.monotonic()
    while rest := remains(lab, folder):
        if time.monotonic() - began > within_s:
            raise RuntimeError(f"left: {rest}")
        time.sleep(0.5)
    return time.monotonic() - began


def has(folder: Path, host: Host, digest: str) -> bool:
    """Whether the command there got what was sent: one that was cut makes a sum of what it got."""
    path = folder / host.name / "sum"
    return path.exists() and digest in path.read_text().split()


def one_cut(lab: Lab, folder: Path, what: str, whole: dict[str, Any]) -> tuple[float, float]:
    """The part of the bytes that left again, and the seconds until nothing was left; a wrong digest raises."""
    for path in folder.glob("*/sum"):
        path.unlink()
    fill(folder, MEGABYTES * 1_000_000)
    digest = hashlib.sha256((folder / "cargo").read_bytes()).hexdigest()
    before = left(lab)[1]
    process = sending(lab, folder, "road", lab.hosts[1:])
    time.sleep(2 + random.random() * (whole["seconds"] - 2))
    mend = cut(lab, folder, what, process)
    out, _ = process.communicate(timeout=600)
    say(f"{what}: {json.loads(out.splitlines()[-1])['notes'] if out.strip() else ''}")
    mend()
    # What nobody tells of its end waits for LEASE_MIN minutes.
    seconds = gone(lab, folder, 90) if what not in CUTS[3:] else 0.0
    whole_there = [host for host in lab.hosts[1:] if has(folder, host, digest)]
    if lacking := [host for host in lab.hosts[1:] if host not in whole_there]:
        again = sending(lab, folder, "road", lacking, whole_there)
        out, _ = again.communicate(timeout=600)
        if again.returncode or json.loads(out.splitlines()[-1])["faults"]:
            raise RuntimeError(f"the push that goes on: {out}")
    if wrong := [host.name for host in lab.hosts[1:] if not has(folder, host, digest)]:
        raise RuntimeError(f"other digests on {wrong}")
    return (left(lab)[1] - before) / whole["carried"] - 1, seconds


def measure_cuts(rounds: int, kinds: Sequence[str] = CUTS) -> dict[str, Any]:
    """Bytes that left for a push that was cut and the one that went on, beside one that was not cut."""
    rows = []
    with rig(HOSTS) as (lab, folder):
        fill(folder, MEGABYTES * 1_000_000)
        whole = inside(lab, folder, "road", lab.hosts[1:])
        for what in kinds:
            parts, took = list[float](), list[float]()
            for _ in range(rounds):
                part, seconds = one_cut(lab, folder, what, whole)
                say(f"{what}: {100 * part:.1f} % again, nothing left after {seconds:.1f} s")
                parts.append(part)
                took.append(seconds)
            name = f"{MEGABYTES} MB to {HOSTS} hosts, cut: {what}"
            rows.append(Row(name, f"{100 * max(parts):.1f} % sent again at most", "",
                            f"{rounds} of {rounds} right digests; mean {100 * sum(parts) / rounds:.1f} %", "<= 15 %",
                            max(parts) <= 0.15))  # fmt: skip
            if what not in CUTS[3:]:
                rows.append(Row("... nothing left but pieces", f"after {max(took):.1f} s at most", "", "", "0 things",
                                True))  # fmt: skip
        pieces = list(folder.glob("*/.muster/road/*/pieces/*"))
        rows.append(Row("... pieces on the hosts at the end", str(len(pieces)), "", "", "0", not pieces))
    return result(rows, [])


def ask(asker: Host, place: Path, host: Host, key: Path, words: str) -> int:
    """Ask the server of a push on a host, with its keys in `place`; returns how many bytes come."""
    port = (place / "log").read_text().partition(" port ")[2].split(".")[0]
    options = ("IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    line = ["ssh", "-F", "none", "-p", port, "-i", str(key), *(word for each in options for word in ("-o", each))]
    script = f"printf '%s\\n' '{words}' | \"$@\" | wc -c"
    return int(asker.run("timeout", "15", "sh", "-c", script, "ask", *line, f"root@{host.address}").stdout)


def attempts(folder: Path, ours: Sequence[Host], theirs: Sequence[Host], count: int) -> list[str]:
    """Ask the servers of the first push `count` times, in three ways; returns what was given away."""
    servers = [(host, place) for host in ours for place in keys(host) if (place / "pid-sshd").exists()]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "stranger"], check=True)
    own = [(host, key) for host in ours for place in keys(host) if (key := place / "me").exists()]
    host, place = servers[0]
    pieces = lambda: list(folder.glob(f"{host.name}/.muster/road/*/pieces/[0-9a-f]*"))  # noqa: E731
    there = until(pieces, "a piece", 60)[0].name
    words = next(line for line in (place / "list").read_text().splitlines() if line.startswith(there))
    if not any(ask(asker, place, host, key, words) > _GREETING for asker, key in own if asker is not host):
        raise RuntimeError("nobody gets a piece: refusals would show nothing")
    given = []
    for number in range(count):
        host, place = random.choice(servers)
        way = ("neighbour", "another push", "not of it")[number % 3]
        words = random.choice((place / "list").read_text().splitlines())
        asker = random.choice(theirs)
        key = random.choice([folder / "stranger", folder / "client"])
        if way == "another push":
            key = random.choice([each / "me" for each in keys(asker)])
        elif way == "not of it":
            asker, key = random.choice([each for each in own if each[0] is not host])
            words = random.choice([f"{hashlib.sha256(b'no').hexdigest()} 1", "../../../../etc/passwd 9", "$(id) 1"])
        if (came := ask(asker, place, host, key, words)) > (_GREETING if way == "not of it" else 0):
            given.append(f"{way}: {came} bytes for {words}")
    return given


def lying(folder: Path, host: Host, over: threading.Event) -> None:
    """Change each piece of a host once it is there."""
    changed = set[Path]()
    while not over.is_set():
        for path in (folder / host.name).glob(".muster/road/*/pieces/[0-9a-f]*"):
            if path not in changed:
                with contextlib.suppress(OSError):
                    path.write_bytes(b"x" * path.stat().st_size)
                changed.add(path)
        time.sleep(0.01)


def measure_refused(rounds: int) -> dict[str, Any]:
    """100 questions that get no answer, and hosts that lie."""
    rows = []
    with rig(6) as (lab, folder):
        first, second = lab.hosts[1:4], lab.hosts[4:]
        lab.rate(lab.hosts[0], "4mbit", "out")
        fill(folder, 30_000_000)
        pushes = [sending(lab, folder, "road", hosts) for hosts in (first, second)]
        until(lambda: any((place / "pid-sshd").exists() for host in first for place in keys(host)), "a server", 60)
        until(lambda: all(keys(host) and (keys(host)[0] / "me").exists() for host in lab.hosts[1:]), "keys", 60)
        given = attempts(folder, first, second, 100)
        rows.append(Row("a neighbour, a host of another push, a host that asks for what is not of it",
                        f"{100 - len(given)} of 100 refused", "", "", "100 of 100", not given))  # fmt: skip
        for push in pushes:
            push.kill()
        lab.rate(lab.hosts[0], "100mbit", "out")
        right = 0
        for _ in range(rounds):
            fill(folder, 18_000_000)
            digest = hashlib.sha256((folder / "cargo").read_bytes()).hexdigest()
            over = threading.Event()
            threading.Thread(target=lying, args=(folder, first[0], over), daemon=True).start()
            sending(lab, folder, "road", first).communicate(timeout=300)
            over.set()
            right += all(has(folder, host, digest) for host in first[1:])
        rows.append(Row("a host changes what it passes on: the others have what was sent", f"{right} of {rounds}", "",
                        "", "all", right == rounds))  # fmt: skip
    return result(rows, given[:3])


def main() -> None:
    """Measure and print."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", nargs="?", choices=["cuts", "refused"], default="cuts")
    command.add_argument("--rounds", type=int, default=4)
    options = command.parse_args()
    stop_like_ctrl_c()
    if why := network.missing():
        raise SystemExit(why)
    print(table({"cuts": measure_cuts, "refused": measure_refused}[options.what](options.rounds)))


if __name__ == "__main__":
    main()
