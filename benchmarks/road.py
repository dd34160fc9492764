"""One copy up: how long until the last host has it, and what left this machine for it.

    python -m benchmarks.road [--quick] [--hosts 8] [--megabytes 100]
    python -m benchmarks.road change    1 MB: as a push sends it, straight to each, and by the road whatever it takes
    python -m benchmarks.road slow      the others, where one host is 20 times slower
    python -m benchmarks.road many      20 MB to 1, 2, 4, 8 and 16 hosts beside the model that tells of 64

What is cut and who is refused: benchmarks/road_faults.py.
Hosts are network namespaces with an OpenSSH server each, and so is the control side, whose uplink is 10 Mbit/s; each
host's link is 100 Mbit/s both ways. What goes over does not compress, and a host's command takes its digest: no engine
is measured here. The rivals: `ssh HOST sha256sum <file`, to all hosts at once, which is what `docker save | ssh docker
load` moves; and, where Debian's docker-registry is on the PATH, a registry on the control side that has it already.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
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
from benchmarks.venv import HOME
from deploy.core.errors import DeployError
from deploy.door import session
from deploy.job.cluster import from_flag
from deploy.send.road.cargo import Cargo, of_file
from deploy.send.road.guide import Delivered
from deploy.send.road.rates import MAKING_S, Rates
from deploy.send.road.road import Road
from lab import network
from lab.network import Lab
from lab.waiting import until

UPLINK, LINK = "10mbit", "100mbit"
# Of an Ethernet frame with TCP over IPv4.
_HEADERS = 14 + 20 + 32
UPLINKS = ("10mbit", "50mbit", "100mbit")
# One more host: a piece of 1 MB over its link, and the making of its keys, server and connection on two cores.
HOP_S = (1 << 20) * 8 / 100e6 + MAKING_S / 8
# What a host does with what it gets; `sum` tells whether it ever had all. One that nobody ended may end later.
SUM = ["sh", "-c", "sum=$(sha256sum); echo $sum >>$HOME/sum; echo $sum"]


@contextlib.contextmanager
def field(count: int) -> Iterator[tuple[Lab, Path]]:
    """A control side, the first host, and `count` hosts with OpenSSH servers, shaped as the page above says.

    Beside them the folder of their homes.
    """
    network.BURST.setdefault(UPLINK, "16kb")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, Lab(hosts=count + 1) as lab:
        folder = Path(scratch)
        folder.chmod(0o755)
        for name in ("client", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        lab.rate(lab.hosts[0], UPLINK, "out")
        known, settings = [], ["Host *", f"  IdentityFile {folder}/client", f"  UserKnownHostsFile {folder}/known"]
        for host in lab.hosts[1:]:
            lab.rate(host, LINK)
            home = folder / host.name
            home.mkdir()
            lines = (f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/client.pub", "StrictModes no",
                     "UsePAM no", "PidFile none", "PermitRootLogin yes", f"SetEnv HOME={home}")  # fmt: skip
            (home / "config").write_text("\n".join(lines) + "\n")
            serve(host, folder)
            known.append(f"{host.address} {(folder / 'host.pub').read_text()}")
        (folder / "known").write_text("".join(known))
        (folder / "settings").write_text("\n".join(settings) + "\n")
        yield lab, folder


def serve(host: network.Host, folder: Path) -> None:
    """Start its OpenSSH server."""
    host.start(shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-f", str(folder / host.name / "config"))


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


def sending(
    lab: Lab, folder: Path, way: str, hosts: Sequence[network.Host], offering: Sequence[network.Host] = ()
) -> subprocess.Popen[str]:
    """The control side, in its namespace. `offering`: hosts that lack nothing."""
    where, others = (",".join(host.address for host in each) for each in (hosts, offering))
    environment = {"PYTHONPATH": str(HOME), "MUSTER_SSH_CONFIG": str(folder / "settings")}
    argv = [sys.executable, "-m", "benchmarks.road", "--inside", way, str(folder / "cargo"), where, others]
    process: subprocess.Popen[str] = lab.hosts[0].start(
        *argv, env=environment, cwd=HOME, stdout=subprocess.PIPE, text=True
    )
    return process


def inside(lab: Lab, folder: Path, way: str, hosts: Sequence[network.Host]) -> dict[str, Any]:
    """One transfer: `seconds`, `bytes`, `carried`, and what the control side says of hosts."""
    before = left(lab)
    process = sending(lab, folder, way, hosts)
    out, _ = process.communicate(timeout=3600)
    if process.returncode:
        raise RuntimeError(f"{way} to {[host.name for host in hosts]} failed")
    size, carried = (now - then for now, then in zip(left(lab), before, strict=True))
    found = json.loads(out.splitlines()[-1])
    if found["faults"]:
        raise RuntimeError(f"{way}: {found['faults']}")
    return {**found, "bytes": size, "carried": carried}


def go(way: str, path: Path, addresses: Sequence[str], offering: Sequence[str]) -> dict[str, Any]:
    """In the control side's namespace: send the file to all, and compare the digest that each says."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    began, notes, sources, faults = time.monotonic(), list[str](), dict[str, Any](), dict[str, str]()
    if way == "ssh":
        ssh = ["ssh", "-F", os.environ["MUSTER_SSH_CONFIG"], "-o", "BatchMode=yes"]
        running = []
        for address in addresses:
            with path.open("rb") as file:
                running.append(subprocess.Popen([*ssh, address, "sha256sum"], stdin=file, stdout=subprocess.PIPE))
        said = [process.communicate()[0].decode() for process in running]
    else:
        cargo = Cargo([of_file(path, path.stat().st_size)])
        with session.open_all(from_flag(",".join([*addresses, *offering])).hosts) as opened:
            faults |= {host: str(fault) for host, fault in opened.faults.items()}
            sessions = [each for host, each in opened.values.items() if host in addresses]
            rates = Rates(path.parent) if way == "send" else None
            with Road(len(sessions), lambda host, sent, total, source="": None, notes.append, rates) as road:
                road.offer([each for host, each in opened.values.items() if host in offering])
                ended, over = dict[str, Any](), threading.Semaphore(0)

                def straight(each: session.Session, argv: Sequence[str], cargo: Cargo) -> Delivered:
                    return Delivered(each.run(argv, input=cargo.chunks(), moving=True), Counter())

                how = {"send": road.send, "straight": straight}.get(way, road.deliver)

                def send(each: session.Session) -> None:
                    try:
                        ended[each.host.name] = how(each, SUM, cargo)
                    except DeployError as fault:
                        faults[each.host.name] = str(fault)
                    over.release()

                for each in sessions:
                    threading.Thread(target=send, args=(each,), daemon=True).start()
                for _ in range(len(sessions) - (way == "but one")):
                    over.acquire()
                # Who is slow is cut now, and fails by that.
                seconds, failed = time.monotonic() - began, dict(faults)
        said = [each.done.out for each in ended.values()]
        sources = {host: dict(each.sources) for host, each in ended.items()}
    if way == "ssh":
        seconds, failed = time.monotonic() - began, {}
    if wrong := [each for each in said if each.split()[:1] != [digest]]:
        raise RuntimeError(f"other digests: {wrong}")
    # What getrusage tells begins with what the process had that started this one.
    high = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    memory = int(high.split()[1]) << 10
    return {"seconds": seconds, "notes": notes, "sources": sources, "memory": memory, "faults": failed}


def measure(count: int, megabytes: int, rival: bool) -> dict[str, Any]:
    """One host, `count` hosts, and a code change of a megabyte, each by the road."""
    with field(count) as (lab, folder):
        hosts = lab.hosts[1:]
        size = fill(folder, megabytes * 1_000_000)
        alone = inside(lab, folder, "road", hosts[:1])
        say(f"one host: {alone['seconds']:.1f} s")
        fill(folder, size)
        with Memory(folder) as memory:
            every = inside(lab, folder, "road", hosts)
        say(f"{count} hosts: {every}")
        old = inside(lab, folder, "ssh", hosts) if rival else None
        pulled = registry(lab, folder, hosts) if rival and shutil.which("docker-registry") else None
        fill(folder, 1_000_000)
        change = inside(lab, folder, "send", hosts)
        three = inside(lab, folder, "ssh", hosts[:3])
    ratio, up, carried = every["seconds"] / alone["seconds"], every["bytes"] / size, every["carried"] / size
    here, there = every["memory"] / 1e6, memory.most / 1e6
    name = f"{megabytes} MB to {count} hosts"
    rivals = [f"ssh to all at once {old['seconds']:.1f} s"] if old else []
    rivals += [f"a registry here {pulled:.1f} s"] if pulled else []
    rows = [
        Row(name, f"{every['seconds']:.1f} s", "; ".join(rivals),
            f"{ratio:.2f} x one host ({alone['seconds']:.1f} s)", "<= 1.25 x", ratio <= 1.25),
        Row(f"{name}: bytes that left", f"{every['carried'] / 1e6:.1f} MB",
            f"{old['carried'] / 1e6:.0f} MB" if old else "",
            f"{carried:.3f} x in what TCP carried; with all headers {up:.3f} x", "<= 1.02 x", carried <= 1.02),
        Row(f"{name}: memory", f"{here:.0f} MB here, {there:.0f} MB on a host", "", "", "<= 64 MB",
            max(here, there) <= 64),
        Row(f"1 MB to {count} hosts", f"{change['seconds']:.1f} s", f"ssh to 3 at once {three['seconds']:.1f} s",
            f"{change['bytes'] / 1e6:.2f} MB left", "<= 1.3 MB", change["bytes"] <= 1_300_000),
    ]  # fmt: skip
    return result(rows, [f"uplink {UPLINK}, links {LINK}", *every["notes"]])


def registry(lab: Lab, folder: Path, hosts: Sequence[network.Host]) -> float:
    """The seconds until all hosts have it from a registry on the control side."""
    (folder / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\nhttp: {{addr: ':5000'}}\n"
    )
    here, url = lab.hosts[0], f"http://{lab.hosts[0].address}:5000/v2/image/blobs/"
    with (folder / "cargo").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    server = here.start(
        "docker-registry", "serve", str(folder / "registry.yml"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: here.run("curl", "-sf", url.rpartition("image")[0]).returncode == 0, "a registry", 20)
    begun = here.run("curl", "-si", "-X", "POST", f"{url}uploads/").stdout
    place = next(line.split()[1] for line in begun.splitlines() if line.lower().startswith("location:"))
    put = ("curl", "-sf", "-T", str(folder / "cargo"), "-H", "Content-Type: application/octet-stream")
    if here.run(*put, f"{place}&digest=sha256:{digest}").returncode:
        raise RuntimeError("the registry takes nothing")
    began = time.monotonic()
    pulls = [host.start("sh", "-c", f"curl -sf {url}sha256:{digest} | sha256sum", stdout=subprocess.PIPE, text=True)
             for host in hosts]  # fmt: skip
    if wrong := [text for pull in pulls if not (text := pull.communicate()[0]).startswith(digest)]:
        raise RuntimeError(f"other digests: {wrong}")
    took = time.monotonic() - began
    server.kill()
    return took


def measure_many(megabytes: int) -> dict[str, Any]:
    """From 1 to 16 hosts, and what the model says of them and of 64: the time to one, and HOP_S for each further."""
    counts, took, rows = (1, 2, 4, 8, 16), dict[int, float](), list[Row]()
    with field(max(counts)) as (lab, folder):
        for count in counts:
            fill(folder, megabytes * 1_000_000)
            took[count] = inside(lab, folder, "road", lab.hosts[1 : count + 1])["seconds"]
            model = took[1] + (count - 1) * HOP_S
            off = took[count] / model - 1
            rows.append(Row(f"{megabytes} MB to {count} hosts", f"{took[count]:.1f} s", f"the model {model:.1f} s",
                            f"{100 * off:+.0f} %", "+-10 %", abs(off) <= 0.1))  # fmt: skip
            say(f"{rows[-1]}")
    for size in (megabytes, 100):
        one = took[1] * size / megabytes
        ratio = 1 + 63 * HOP_S / one
        rows.append(Row(f"{size} MB to 64 hosts, by the model", f"{one + 63 * HOP_S:.1f} s", "",
                        f"{ratio:.2f} x one host ({one:.1f} s)", "<= 1.5 x", ratio <= 1.5))  # fmt: skip
    return result(rows, [f"a further host: {HOP_S:.2f} s"])


def measure_change(count: int) -> dict[str, Any]:
    """A megabyte to all hosts, as a push sends it, beside the two ways that it chooses from."""
    rows = []
    with field(count) as (lab, folder):
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
    with field(count) as (lab, folder):
        fill(folder, megabytes * 1_000_000)
        without = inside(lab, folder, "road", lab.hosts[2:])
        fill(folder, megabytes * 1_000_000)
        lab.rate(lab.hosts[1], "500kbit")
        others = inside(lab, folder, "but one", lab.hosts[1:])
    ratio = others["seconds"] / without["seconds"]
    row = Row(f"{megabytes} MB to {count - 1} hosts beside a slow one", f"{others['seconds']:.1f} s", "",
              f"{ratio:.2f} x without it ({without['seconds']:.1f} s)", "<= 1.1 x", ratio <= 1.1)  # fmt: skip
    return result([row], others["notes"])


def fill(folder: Path, size: int) -> int:
    """Other bytes to send, which no compression makes smaller."""
    (folder / "cargo").write_bytes(secrets.token_bytes(size))
    return size


def main() -> None:
    """Measure and print; or, with --inside, be the control side."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", nargs="?", choices=["change", "slow", "many"])
    command.add_argument("--quick", action="store_true", help="less to send, and no rival")
    command.add_argument("--hosts", type=int, default=8)
    command.add_argument("--megabytes", type=int, default=0)
    command.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    options = command.parse_args()
    if options.inside:
        # Ctrl-C counts here, however this was started.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        way, path, *where = options.inside
        print(json.dumps(go(way, Path(path), *(text.split(",") if text else [] for text in where))))
        return
    stop_like_ctrl_c()
    if why := network.missing():
        raise SystemExit(why)
    count, size = options.hosts, options.megabytes
    if options.what == "change":
        figures = measure_change(count)
    elif options.what == "slow":
        figures = measure_slow(count, size or 100)
    elif options.what == "many":
        figures = measure_many(size or 20)
    else:
        figures = measure(count, size or (20 if options.quick else 100), not options.quick)
    print(table(figures))


if __name__ == "__main__":
    main()
