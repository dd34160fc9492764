"""Resources of a host: shared memory, open files, memory, disk, CPU, limits, the connection table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote

from ...causes.docker_faults import SECCOMP_FIX
from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import binary, in_seconds, listed
from ...job.option_words import command_of
from ..answers import Answers
from ..request import MUSTER, Facts, PreflightRequest

MIB, GIB = 1 << 20, 1 << 30
TEMPORARY_LEAST = 64 << 10
# Shared memory: gloo needs almost none; NCCL and data loaders with workers need some.
SHM_LEAST, SHM_NCCL, SHM_GOOD, FILES_GOOD = 4 * MIB, 64 * MIB, GIB, 4096
DISK_LEAST, DISK_GOOD, MEMORY_LEAST, MEMORY_GOOD = 16 * MIB, GIB, 384 * MIB, 2 * GIB
# Limits on memory: resource, letter of ulimit, words, least, good. Measured with torch 2.13 on CPU and one rank: below
# `least` it fails, above it trains.
OF_MEMORY = (
    ("as", "v", "address space", 1100 * MIB, 4 * GIB),
    ("data", "d", "data", 300 * MIB, 2 * GIB),
    ("stack", "s", "stack", 64 << 10, MIB),
)
# Each thread gets a stack as large as the limit, and the kernel refuses one that is larger than its memory.
STACK_MOST, STACK_USUAL = GIB, 8 * MIB
# Python itself crashes with less than 128 KiB.
STACK_LEAST = 256 << 10
CPU_LEAST_S = 3
# With less than PACE_LEAST of a core, all ranks practically stop. If the host is not busy (a load of at most BUSY per
# core), a limit withholds the rest of the core.
PACE_LEAST, PACE_GOOD, BUSY = 0.05, 0.1, 4.0
# Open files needed, plus one for each host: with two nodes, torchrun and a rank need 24 files on the first host and 20
# on the other.
FILES_FIRST, FILES_OTHER = 22, 18

_SHM_BY_HAND = "docker run --shm-size 16g (or --ipc host)"
_SHM_OF_PROVIDER = (
    "DataLoader(num_workers=0), or smaller batches; if NCCL's error names /dev/shm: --env NCCL_SHM_DISABLE=1; "
    "or ask the box's provider for a larger one"
)
_NO_THREAD = "`can't start new thread`"


def check(answers: Answers) -> Iterator[Finding]:
    """Check each host."""
    for host, facts in answers.facts.items():
        has = facts["resources"]
        yield from _shm(host, has, answers.request)
        yield from _temporary(host, has["disk"])
        # A read-only system image (composefs, squashfs) never has free room, and a run writes nothing there.
        image = "" if has["disk"].get("/", {}).get("writable", True) else "/"
        rooms = {path: room for path, room in has["disk"].items() if path not in ("/dev/shm", image)}
        whose = command_of("clean", hosts=host) if has.get("bare") else "sudo docker system df"
        yield from _disk(host, rooms, whose)
        yield from _memory(host, has["memory"], answers.request.processes)
        yield from _pace(host, has)
        yield from _limits(
            host, has, len(answers.hosts) + (FILES_FIRST if host == answers.rendezvous_host else FILES_OTHER)
        )


def _temporary(host: str, rooms: Mapping[str, Facts]) -> Iterator[Finding]:
    """Yield a finding if no folder is writable for the temporary files that Python and torchrun need."""
    tried = {path: room for path, room in rooms.items() if path not in ("/dev/shm", "/")}
    open_ones = [path for path, room in tried.items() if room.get("writable", True) and room["free"] >= TEMPORARY_LEAST]
    if tried and not open_ones:
        yield find(
            "folder-readonly",
            host,
            f"no folder for temporary files is writable ({', '.join(tried)})",
            symptom="`No usable temporary directory found`",
        )


def _shm(host: str, has: Facts, request: PreflightRequest) -> Iterator[Finding]:
    room = has["disk"].get("/dev/shm")
    if room is None:
        return
    fix = 'shm_size = "16g" under [job] of cluster.toml' if request.style == MUSTER else _SHM_BY_HAND
    least, more = SHM_NCCL if request.by_nccl else SHM_LEAST, ""
    if has.get("bare"):
        # Only the machine's provider can change it. One rank per host needs little shared memory, even with NCCL.
        fix, least, more = _SHM_OF_PROVIDER, SHM_LEAST, ": data loaders die with a bus error (num_workers=0 needs none)"
    free = min(room["free"], room["total"])
    if not room.get("writable", True):
        yield find("shm-small", host, "/dev/shm is not writable", fix)
    elif free <= least:
        yield find("shm-small", host, f"/dev/shm has {binary(free)} free of {binary(room['total'])}{more}", fix)
    elif free < SHM_GOOD:
        yield find("shm-small", host, f"/dev/shm has {binary(free)} free{more}", fix, WARNING)


def _disk(host: str, rooms: Mapping[str, Facts], whose: str) -> Iterator[Finding]:
    symptom = "`No space left on device`, at the start or at the first checkpoint"
    for path, room in rooms.items():
        fix = f"on {host}: df -h {quote(path)}; {whose}"
        if room["free"] < DISK_LEAST and room["total"]:
            # If /tmp is full, Python uses another folder, and torchrun continues.
            level = WARNING if path == "/tmp" else FAULT
            yield find("disk-full", host, f"{path} is full ({binary(room['free'])} free)", fix, level)
        elif room["inodes"] and not room["inodes_free"]:
            yield find(
                "inodes-full", host, f"{path} has no inodes left", f"on {host}: df -i {quote(path)}", symptom=symptom
            )
        elif room["free"] < DISK_GOOD and room["total"]:
            yield find("disk-full", host, f"{path} has {binary(room['free'])} free", fix, WARNING)


def _memory(host: str, memory: dict[str, int], processes: int) -> Iterator[Finding]:
    free = memory.get("MemAvailable", 0)
    free = min(free, memory["limit"]) if memory.get("limit") else free
    fix = f"on {host}: free -h; ps aux --sort -rss | head; or use fewer processes, smaller batches"
    least = MEMORY_LEAST * processes
    if free and free < max(least, MEMORY_GOOD):
        level = FAULT if free < least else WARNING
        yield find("memory-low", host, f"only {binary(free)} of memory free", fix, level)


def _pace(host: str, has: Facts) -> Iterator[Finding]:
    """Yield a finding if a loop that only computes got less than PACE_GOOD of a core (busy host: PACE_LEAST)."""
    seconds, used, load = has.get("pace", (1.0, 1.0, 0.0))
    share = used / seconds if seconds else 1.0
    busy = load > BUSY * max(1, has.get("cores", 1))
    if share >= PACE_GOOD or (busy and share >= PACE_LEAST):
        return
    took = f"a loop that needs {in_seconds(used, 2)} of CPU took {in_seconds(seconds, 2)}"
    seen = f"{took} on {host}; the load of the host is {load:.1f}"
    if busy:
        fix = f"on {host}: top   (other programs use its cores)"
    else:
        fix = f"on {host}: systemd-cgtop; a CPU quota on a control group above the containers limits them"
    yield find(
        "cpu-low",
        host,
        f"its processes get only {max(1, round(100 * share))} % of a core",
        fix,
        FAULT if share < PACE_LEAST and not busy else WARNING,
        evidence=(seen,),
    )


def _soft(has: Facts, name: str) -> int:
    """Return the soft limit; -1 if there is none, or it is unknown."""
    return int(has.get(name, [-1])[0])


def _limits(host: str, has: Facts, files: int) -> Iterator[Finding]:
    soft = _soft(has, "nofile")
    if 0 <= soft < FILES_GOOD:
        level = WARNING if soft >= files else "fault"
        yield find("open-files", host, f"only {soft} open files are allowed", level=level)
    yield from _quotas(host, has)
    yield from _threads(host, has)
    count, most = (*has.get("conntrack", ()), 0, 0)[:2]
    if most and count >= 0.8 * most:
        level = "fault" if count >= 0.98 * most else WARNING
        yield find(
            "conntrack-full",
            host,
            f"the kernel's connection table is full: {count} of {most}",
            f"on {host}: sudo sysctl -w net.netfilter.nf_conntrack_max={4 * most}",
            level,
        )


def _threads(host: str, has: Facts) -> Iterator[Finding]:
    """Yield a finding if threads do not start, or may not due to the stack limit, which sets each thread's stack."""
    stack, (started, wanted) = _soft(has, "stack"), has.get("threads", (1, 1))
    short, level = f"only {started} of {wanted} threads start", FAULT if started < wanted else WARNING
    if stack > STACK_MOST:
        text = f"the stack limit is {binary(stack)} (ulimit -s), and each thread asks for that much"
        text += f": {short}" if started < wanted else "; threads start now, but may not when memory is short"
        fix = stack_fix(host)
    elif started < wanted:
        user, group = _soft(has, "nproc"), has.get("pids", -1)
        limits = [f"{user} for its user (ulimit -u)"] * (user >= 0) + [f"{group} in its container"] * (group >= 0)
        text = f"{short}; the limits on processes and threads: {listed(limits) or 'none is visible there'}"
        fix = f"raise `pids` under [job] in cluster.toml; on {host}: ulimit -u; systemctl show docker -p TasksMax"
        if has.get("denied"):
            yield find(
                "docker-refused",
                host,
                f"{short}: a rule of the engine (seccomp) forbids them; no limit does",
                SECCOMP_FIX.format(host=host),
                symptom=_NO_THREAD,
                group="resources",
            )
            return
    else:
        return
    yield find("process-limits", host, text, fix, level, symptom=_NO_THREAD)


def stack_fix(host: str) -> str:
    """Return a fix that shows where a container's stack limit comes from, and the usual value."""
    look = f"on {host}: grep -A4 default-ulimits /etc/docker/daemon.json   ({STACK_USUAL} bytes are usual)"
    return f"{look}; or docker run --ulimit stack={STACK_USUAL}"


def _quotas(host: str, has: Facts) -> Iterator[Finding]:
    """Yield findings about limits of the shell or the container: file size, seconds of CPU, memory."""
    size, seconds = _soft(has, "fsize"), _soft(has, "cpu")
    if 0 <= size < GIB:
        level = FAULT if size < MIB else WARNING
        yield find(
            "process-limits",
            host,
            f"a file may not be larger than {size} bytes (ulimit -f)",
            "docker run --ulimit fsize=-1",
            level,
            symptom="`File size limit exceeded`",
        )
    if seconds >= 0:
        level = FAULT if seconds < CPU_LEAST_S else WARNING
        yield find(
            "process-limits",
            host,
            f"the system ends a process after {seconds} s of CPU time (ulimit -t)",
            "docker run --ulimit cpu=-1",
            level,
            symptom="exit code -24 (SIGXCPU)",
        )
    for name, letter, words, least, good in OF_MEMORY:
        soft = _soft(has, name)
        if 0 <= soft < good:
            fix = stack_fix(host) if name == "stack" else f"docker run --ulimit {name}=-1"
            level = FAULT if soft < least else WARNING
            yield find(
                "process-limits",
                host,
                f"a process may have {binary(soft)} of {words} (ulimit -{letter})",
                fix,
                level,
                symptom="MemoryError, or a crash (139)",
            )
