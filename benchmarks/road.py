"""One copy up: how long until the last host has it, and what left this machine for it.

    python -m benchmarks.road [--quick] [--hosts 8] [--megabytes 100]
    python -m benchmarks.road change    1 MB: as a push sends it, straight to each, and by the road whatever it takes
    python -m benchmarks.road slow      the others, where one host is 20 times slower
    python -m benchmarks.road cuts      the control side killed at ten random moments, and the push that goes on

Hosts are network namespaces with an OpenSSH server each, and so is the control side, whose uplink is 10 Mbit/s; each
host's link is 100 Mbit/s both ways. What goes over does not compress, and a host's command takes its digest: no engine
is measured here. The rival: `ssh HOST sha256sum <file`, to all hosts at once, which is what `docker save | ssh docker
load` moves.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figure import Row, result, say, stop_like_ctrl_c, table
from deploy.door import session
from deploy.job.cluster import from_flag
from deploy.send.road.cargo import Cargo, of_file
from deploy.send.road.guide import Delivered
from deploy.send.road.rates import Rates
from deploy.send.road.road import Road
from lab import network
from lab.network import Lab

UPLINK, LINK = "10mbit", "100mbit"
# Of an Ethernet frame with TCP over IPv4.
_HEADERS = 14 + 20 + 32
UPLINKS = ("10mbit", "50mbit", "100mbit")
HOME = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def field(count: int, folder: Path) -> Iterator[Lab]:
    """A control side, the first host, and `count` hosts with OpenSSH servers, shaped as the page above says."""
    network.BURST.setdefault(UPLINK, "16kb")
    for name in ("client", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with Lab(hosts=count + 1) as lab:
        lab.rate(lab.hosts[0], UPLINK, "out")
        known, settings = [], ["Host *", f"  IdentityFile {folder}/client", f"  UserKnownHostsFile {folder}/known"]
        for host in lab.hosts[1:]:
            lab.rate(host, LINK)
            home = folder / host.name
            home.mkdir()
            lines = (f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/client.pub", "StrictModes no",
                     "UsePAM no", "PidFile none", "PermitRootLogin yes", f"SetEnv HOME={home}")  # fmt: skip
            (home / "config").write_text("\n".join(lines) + "\n")
            host.start(shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-f", str(home / "config"))
            known.append(f"{host.address} {(folder / 'host.pub').read_text()}")
        (folder / "known").write_text("".join(known))
        (folder / "settings").write_text("\n".join(settings) + "\n")
        yield lab


def left(lab: Lab) -> tuple[int, int]:
    """Bytes that left the control side so far, with all headers; and those in what TCP carried."""
    shown = network.must("ip", "-netns", lab.hosts[0].space, "-s", "-j", "link", "show", "eth0")
    sent = json.loads(shown)[0]["stats64"]["tx"]
    return int(sent["bytes"]), int(sent["bytes"] - _HEADERS * sent["packets"])


class Memory:
    """The most memory that one host's part of a transfer had at a moment, in bytes: sampled while the block runs.

    A page that several processes share counts once (PSS).
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._over, self.most = str(folder), threading.Event(), 0

    def __enter__(self) -> Memory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            of_host = Counter[str]()
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    home = process.environ().get("HOME", "")
                    if home.startswith(f"{self._folder}/"):
                        of_host[home] += process.memory_full_info().pss
            self.most = max(self.most, *of_host.values(), 0)


def inside(lab: Lab, folder: Path, way: str, hosts: Sequence[network.Host], seconds: float = 3600) -> dict[str, Any]:
    """One transfer, by the control side in its namespace: `seconds`, `bytes`, `carried`, and what it says of hosts."""
    before, where = left(lab), ",".join(host.address for host in hosts)
    environment = {"PYTHONPATH": str(HOME), "MUSTER_SSH_CONFIG": str(folder / "settings")}
    argv = [sys.executable, "-m", "benchmarks.road", "--inside", way, str(folder / "cargo"), where]
    process = lab.hosts[0].start(*argv, env=environment, cwd=HOME, stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=seconds)
    if process.returncode:
        raise RuntimeError(f"{way} to {where} failed")
    size, carried = (now - then for now, then in zip(left(lab), before, strict=True))
    return {**json.loads(out.splitlines()[-1]), "bytes": size, "carried": carried}


def go(way: str, path: Path, addresses: Sequence[str]) -> dict[str, Any]:
    """In the control side's namespace: send the file to all, and compare the digest that each says."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    began, notes, sources = time.monotonic(), list[str](), dict[str, Any]()
    if way == "ssh":
        ssh = ["ssh", "-F", os.environ["MUSTER_SSH_CONFIG"], "-o", "BatchMode=yes"]
        running = []
        for address in addresses:
            with path.open("rb") as file:
                running.append(subprocess.Popen([*ssh, address, "sha256sum"], stdin=file, stdout=subprocess.PIPE))
        said = [process.communicate()[0].decode() for process in running]
    else:
        cargo = Cargo([of_file(path, path.stat().st_size)])
        with session.open_all(from_flag(",".join(addresses)).hosts) as opened:
            sessions = list(opened.all().values())
            rates = Rates(path.parent) if way == "send" else None
            with Road(len(sessions), lambda host, sent, total, source="": None, notes.append, rates) as road:
                ended, over = dict[str, Any](), threading.Semaphore(0)

                def straight(each: session.Session, argv: Sequence[str], cargo: Cargo) -> Delivered:
                    return Delivered(each.run(argv, input=cargo.chunks(), moving=True), Counter())

                how = {"send": road.send, "straight": straight}.get(way, road.deliver)

                def send(each: session.Session) -> None:
                    ended[each.host.name] = how(each, ["sha256sum"], cargo)
                    over.release()

                for each in sessions:
                    threading.Thread(target=send, args=(each,), daemon=True).start()
                for _ in range(len(sessions) - (way == "but one")):
                    over.acquire()
                seconds = time.monotonic() - began
        said = [each.done.out for each in ended.values()]
        sources = {host: dict(each.sources) for host, each in ended.items()}
    if way == "ssh":
        seconds = time.monotonic() - began
    if wrong := [each for each in said if each.split()[:1] != [digest]]:
        raise RuntimeError(f"other digests: {wrong}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"seconds": seconds, "notes": notes, "sources": sources, "memory": memory}


def measure(count: int, megabytes: int, rival: bool) -> dict[str, Any]:
    """One host, `count` hosts, and a code change of a megabyte, each by the road."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with field(count, folder) as lab:
            hosts = lab.hosts[1:]
            size = fill(folder, megabytes * 1_000_000)
            alone = inside(lab, folder, "road", hosts[:1])
            say(f"one host: {alone['seconds']:.1f} s")
            fill(folder, size)
            with Memory(folder) as memory:
                every = inside(lab, folder, "road", hosts)
            say(f"{count} hosts: {every}")
            old = inside(lab, folder, "ssh", hosts) if rival else None
            fill(folder, 1_000_000)
            change = inside(lab, folder, "send", hosts)
            three = inside(lab, folder, "ssh", hosts[:3])
    ratio, up, carried = every["seconds"] / alone["seconds"], every["bytes"] / size, every["carried"] / size
    here, there = every["memory"] / 1e6, memory.most / 1e6
    name = f"{megabytes} MB to {count} hosts"
    rows = [
        Row(name, f"{every['seconds']:.1f} s", f"ssh to all at once {old['seconds']:.1f} s" if old else "",
            f"{ratio:.2f} x one host ({alone['seconds']:.1f} s)", "<= 1.25 x", ratio <= 1.25),
        Row(f"{name}: bytes that left", f"{every['bytes'] / 1e6:.1f} MB", f"{old['bytes'] / 1e6:.0f} MB" if old else "",
            f"{up:.3f} x; {carried:.3f} x without Ethernet, IP and TCP", "<= 1.02 x", up <= 1.02),
        Row(f"{name}: memory", f"{here:.0f} MB here, {there:.0f} MB on a host", "", "", "<= 64 MB",
            max(here, there) <= 64),
        Row(f"1 MB to {count} hosts", f"{change['seconds']:.1f} s", f"ssh to 3 at once {three['seconds']:.1f} s",
            f"{change['bytes'] / 1e6:.2f} MB left", "<= 1.3 MB", change["bytes"] <= 1_300_000),
    ]  # fmt: skip
    return result(rows, [f"uplink {UPLINK}, links {LINK}; bytes with all headers", *every["notes"]])


def measure_change(count: int) -> dict[str, Any]:
    """A megabyte to all hosts, as a push sends it, beside the two ways that it chooses from."""
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with field(count, folder) as lab:
            for uplink in UPLINKS:
                network.BURST.setdefault(uplink, "64kb")
                lab.rate(lab.hosts[0], uplink, "out")
                took = dict[str, list[float]]()
                for way in ("send", "straight", "road") * 3:
                    fill(folder, 1_000_000)
                    took.setdefault(way, []).append(inside(lab, folder, way, lab.hosts[1:])["seconds"])
                say(f"{uplink}: {took}")
                send, straight, road = (sorted(took[way])[1] for way in ("send", "straight", "road"))
                rows.append(Row(f"1 MB to {count} hosts, uplink {uplink}", f"{send:.1f} s",
                                f"straight {straight:.1f} s, by the road {road:.1f} s", "medians of 3",
                                "<= 1.1 x the faster", send <= 1.1 * min(straight, road)))  # fmt: skip
    return result(rows, [])


def measure_slow(count: int, megabytes: int) -> dict[str, Any]:
    """The others' time with a host that is 20 times slower than the uplink, beside their time without it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with field(count, folder) as lab:
            fill(folder, megabytes * 1_000_000)
            without = inside(lab, folder, "road", lab.hosts[2:])
            fill(folder, megabytes * 1_000_000)
            lab.rate(lab.hosts[1], "500kbit")
            others = inside(lab, folder, "but one", lab.hosts[1:])
    ratio = others["seconds"] / without["seconds"]
    row = Row(f"{megabytes} MB to {count - 1} hosts beside a slow one", f"{others['seconds']:.1f} s", "",
              f"{ratio:.2f} x without it ({without['seconds']:.1f} s)", "<= 1.1 x", ratio <= 1.1)  # fmt: skip
    return result([row], others["notes"])


def measure_cuts(count: int, megabytes: int, cuts: int) -> dict[str, Any]:
    """Bytes that left for a push that was killed once, and for the one that went on, beside one that was not killed."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder, again = Path(scratch), list[float]()
        folder.chmod(0o755)
        with field(count, folder) as lab:
            fill(folder, megabytes * 1_000_000)
            whole = inside(lab, folder, "road", lab.hosts[1:])
            for _ in range(cuts):
                fill(folder, megabytes * 1_000_000)
                before = left(lab)[0]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    inside(lab, folder, "road", lab.hosts[1:], 2 + random.random() * (whole["seconds"] - 2))
                lab.hosts[0].busy[-1].kill()
                inside(lab, folder, "road", lab.hosts[1:])
                again.append((left(lab)[0] - before) / whole["bytes"] - 1)
                say(f"{100 * again[-1]:.1f} % again")
    most = max(again)
    name = f"{megabytes} MB to {count} hosts, killed at {cuts} moments: sent again"
    row = Row(name, f"{100 * most:.1f} % at most", "",
              f"{100 * sum(again) / cuts:.1f} % in the mean", "<= 15 %", most <= 0.15)  # fmt: skip
    return result([row], ["all digests were right"])


def fill(folder: Path, size: int) -> int:
    """Other bytes to send, which no compression makes smaller."""
    (folder / "cargo").write_bytes(secrets.token_bytes(size))
    return size


def main() -> None:
    """Measure and print; or, with --inside, be the control side."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", nargs="?", choices=["change", "slow", "cuts"])
    command.add_argument("--quick", action="store_true", help="less to send, and no rival")
    command.add_argument("--hosts", type=int, default=8)
    command.add_argument("--megabytes", type=int, default=0)
    command.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = command.parse_args()
    if options.inside:
        way, path, where = options.inside
        print(json.dumps(go(way, Path(path), where.split(","))))
        return
    stop_like_ctrl_c()
    if why := network.missing():
        raise SystemExit(why)
    if options.what == "change":
        print(table(measure_change(options.hosts)))
        return
    if options.what:
        many = (measure_slow(options.hosts, options.megabytes or 100) if options.what == "slow"
                else measure_cuts(min(options.hosts, 4), options.megabytes or 20, 10))  # fmt: skip
        print(table(many))
        return
    print(table(measure(options.hosts, options.megabytes or (20 if options.quick else 100), not options.quick)))


if __name__ == "__main__":
    main()
