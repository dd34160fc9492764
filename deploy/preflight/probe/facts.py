"""Collect the facts of a host: interfaces, names, limits, versions, GPUs; with a time limit for each. See probe.py.

It needs only Python 3.8 and its standard library. It only reads, and changes nothing. It leaves out what it cannot
read, or reports the error.
"""

import ctypes
import errno
import fcntl
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

from .sockets import listeners, namespace, text

UP, LOOPBACK, POINT_TO_POINT, RUNNING = 0x1, 0x8, 0x10, 0x40
SIOCGIFMTU = 0x8921
# Without its persistence daemon, the NVIDIA driver starts up for each query: that takes some seconds with eight GPUs.
NAMES_S, GPUS_S, SMI_S = 2.5, 21.0, 20.0
RESOLVE_S = 2.2  # how long to wait for a name to resolve
PACE_S, PACE_MOST_S = 0.02, 3.0
# How many threads to try: any rank has more.
THREADS = 16
# The columns of a GPU's row. If the driver does not know one of them, nvidia-smi returns no rows, so it is asked again
# without that column.
GPU_FIELDS = (
    "index,name,memory.total,memory.used,driver_version,pci.bus_id,ecc.errors.uncorrected.volatile.total,"
    "retired_pages.pending,remapped_rows.pending,remapped_rows.failure,compute_mode,compute_cap,persistence_mode,"
    "mig.mode.current,fabric.state,pcie.link.width.current,clocks_throttle_reasons.hw_slowdown"
).split(",")
INFINIBAND, MOST_GIDS = "/sys/class/infiniband", 32
# The number of the system call clone3, which is the same on all processors.
CLONE3 = (435,)
# A word of a command line that starts a run's ranks. The whole word must match: a file's name may contain it too.
LAUNCHER = re.compile(
    r"(?:.*/)?torchrun|torch\.distributed\.(?:run|launch)|(?:.*\.)?trainer\.node\.(?:agent|launch\.\w+)"
)
# A command that sends a run to hosts from here: the run's command follows its name in the same command line.
SENDER = re.compile(r"(?:.*/)?(?:muster|fab)")
VARIABLES = re.compile(r"(NCCL|GLOO|TORCH|PET|MASTER|RANK|WORLD|CUDA|OMP|TP_SOCKET|UCX|FI)_\w*|\w*_proxy|\w*_PROXY")


class Interface(ctypes.Structure):
    """`struct ifaddrs`. gloo and NCCL look at interfaces in the order of this list."""


Interface._fields_ = [
    ("next", ctypes.POINTER(Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("mask", ctypes.c_void_p),
]


def number_of(name):
    """Return the kernel's index of an interface, which link-local addresses need; 0 if it has none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def interfaces():
    """Return the interfaces by name: flags, MTU, and addresses with prefix lengths, in the system's own order."""
    libc, head, by_name = ctypes.CDLL(None, use_errno=True), ctypes.POINTER(Interface)(), {}
    if libc.getifaddrs(ctypes.byref(head)):
        return by_name
    at = head
    while at:
        row = at.contents
        name = row.name.decode(errors="replace")
        if name not in by_name:
            by_name[name] = link(name, row.flags)
        if row.address:
            family = struct.unpack("=H", ctypes.string_at(row.address, 2))[0]
            start, size = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}.get(family, (0, 0))
            if size:
                address = socket.inet_ntop(family, ctypes.string_at(row.address + start, size))
                mask = ctypes.string_at(row.mask + start, size) if row.mask else b""
                by_name[name]["addresses"].append([address, sum(bin(byte).count("1") for byte in mask)])
        at = row.next
    libc.freeifaddrs(head)
    return by_name


def link(name, flags):
    """Return what the kernel reports about an interface, with an empty list for its addresses."""
    folder = "/sys/class/net/" + name
    speed = text(folder + "/speed").strip()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            request = struct.pack("16si", name.encode()[:15], 0)
            mtu = struct.unpack("16si", fcntl.ioctl(asked, SIOCGIFMTU, request)[:20])[1]
        except OSError:
            mtu = 0
    return {
        "mtu": mtu,
        "speed": int(speed) if speed.isdigit() else 0,
        "mac": text(folder + "/address").strip(),
        "bridge": os.path.isdir(folder + "/bridge"),
        "ports": sorted(os.listdir(folder + "/brif")) if os.path.isdir(folder + "/brif") else [],
        "tunnel": os.path.exists(folder + "/tun_flags"),
        "index": number_of(name),
        "up": bool(flags & UP),
        "running": bool(flags & RUNNING),
        "loopback": bool(flags & LOOPBACK),
        "point_to_point": bool(flags & POINT_TO_POINT),
        "addresses": [],
    }


def call_all(work, wait_s=NAMES_S):
    """Call functions in parallel; return their values by name. A function that takes too long: {"error": "timeout"}."""
    return start_all(work)(wait_s)


def start_all(work):
    """Start the functions of `call_all`; return a function that waits the given seconds and returns the values."""
    answers = {name: {"error": "timeout"} for name in work}

    def answer(name):
        try:
            answers[name] = work[name]()
        except OSError as failed:
            answers[name] = {"error": failed.strerror or str(failed), "code": failed.errno}
        except Exception as failed:
            answers[name] = {"error": repr(failed)}

    threads = [threading.Thread(target=answer, args=(name,), daemon=True) for name in work]
    for thread in threads:
        thread.start()

    def ended(wait_s):
        end = time.monotonic() + wait_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return dict(answers)

    return ended


def resolve(name):
    """Return a name's addresses in getaddrinfo's order, each as [address, is it this machine's, canonical name]."""
    rows = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_CANONNAME)
    return [[row[4][0], bindable(row), row[3]] for row in rows]


def resolve_all(names):
    """Resolve these names in parallel; a name that takes longer than RESOLVE_S gets {"error": "timeout"}."""
    return call_all({name: (lambda name=name: resolve(name)) for name in names}, RESOLVE_S)


def bindable(row):
    """Whether an address belongs to this machine."""
    try:
        with socket.socket(row[0], row[1]) as tried:
            tried.bind(row[4])
        return True
    except OSError:
        return False


def software():
    """Return the versions of Python, torch, its CUDA or HIP, and NCCL, without importing any of them."""
    versions = {"python": sys.version.split()[0]}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        of_torch = torch_version(text(os.path.join(folder, "torch", "version.py")))
        versions.update({name: value for name, value in of_torch.items() if name not in versions})
        for entry in sorted(names):
            nccl = re.match(r"nvidia_nccl_cu\d+-(\d[^-]*)\.dist-info", entry)
            if nccl:
                versions.setdefault("nccl", nccl[1])
    return versions


def torch_version(source):
    """Return the versions in torch/version.py: torch's, and that of the CUDA or HIP it was built for (or `None`)."""
    pairs = re.findall(r"^(__version__|cuda|hip)\b[^=\n]*= *'?\"?([^'\"\n]+)", source, re.M)
    return {"torch" if word == "__version__" else word: value.strip() for word, value in pairs}


def gpus():
    """Return nvidia-smi's rows (GPU_FIELDS), its error message if any, and how many seconds it took."""
    if not shutil.which("nvidia-smi"):
        devices, amd = os.path.exists("/dev/nvidia0"), os.path.exists("/sys/class/kfd/kfd")
        return {"absent": True, "devices": devices, "amd": amd}
    began, asked = time.monotonic(), list(GPU_FIELDS)
    while True:
        argv = ["nvidia-smi", "--query-gpu=" + ",".join(asked), "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SMI_S, check=False)
        except subprocess.TimeoutExpired:
            return {"error": "timeout"}
        output = done.stdout.decode(errors="replace").strip()
        strange = re.match(r'Field "([^"]+)" is not a valid field', output)
        if not strange or strange[1] not in asked:
            break
        asked.remove(strange[1])
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    whole = [dict(map(lambda *pair: pair, asked, row)) for row in rows if len(row) == len(asked) and row[0].isdigit()]
    answer = {"rows": [[row.get(name, "") for name in GPU_FIELDS] for row in whole]}
    if done.returncode or len(whole) < len(rows):
        answer["error"] = output[-500:] or "no output"
    return dict(answer, seconds=round(time.monotonic() - began, 1))


def cuda():
    """Ask the driver what training will ask it first: its CUDA version, the code of cuInit, the number of GPUs."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    code = driver.cuInit(0)
    if not code:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    return {"version": version.value, "code": code, "count": count.value}


def rdma():
    """Return the RDMA devices by name: their ports, each with state, rate, link layer and addresses (GIDs)."""
    devices = {}
    for device in sorted(os.listdir(INFINIBAND)) if os.path.isdir(INFINIBAND) else []:
        folder = os.path.join(INFINIBAND, device, "ports")
        ports = devices.setdefault(device, {})
        for number in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            port = os.path.join(folder, number)
            words = {name: text(os.path.join(port, name)).strip() for name in ("state", "rate", "link_layer")}
            ports[number] = dict(words, gids=gids(port))
    return devices


def verbs():
    """Return how many RDMA devices libibverbs finds, which NCCL uses; -1 if there is no such library."""
    try:
        library = ctypes.CDLL("libibverbs.so.1")
    except OSError:
        return -1
    library.ibv_get_device_list.restype = ctypes.c_void_p
    count = ctypes.c_int(0)
    devices = library.ibv_get_device_list(ctypes.byref(count))
    if devices:
        library.ibv_free_device_list(ctypes.c_void_p(devices))
    return max(count.value, 0)


def gids(port):
    """Return the non-empty addresses of an RDMA port: [index, address, type, network interface]."""
    rows = []
    for index in map(str, range(MOST_GIDS)):
        address = text(os.path.join(port, "gids", index)).strip()
        if address.strip("0:"):
            more = [text(os.path.join(port, "gid_attrs", kind, index)).strip() for kind in ("types", "ndevs")]
            rows.append([int(index), address, *more])
    return rows


def resources():
    """Return limits and free space, in bytes or counts, without those that cannot be read."""
    answer = {"cores": len(os.sched_getaffinity(0)), "disk": {}}
    for name in ("nofile", "memlock", "fsize", "cpu", "as", "data", "stack", "nproc"):
        answer[name] = list(resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper())))
    for path in ("/dev/shm", "/tmp", "/var/tmp", os.path.expanduser("~"), working_folder(), "/"):
        try:
            room = os.statvfs(path)
        except OSError:
            continue
        sizes = {"total": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}
        answer["disk"][path] = dict(sizes, inodes=room.f_files, inodes_free=room.f_favail)
        answer["disk"][path]["writable"] = not room.f_flag & os.ST_RDONLY and os.access(path, os.W_OK)
    memory = dict(re.findall(r"^(\w+): +(\d+) kB", text("/proc/meminfo"), re.M))
    answer["memory"] = {name: int(memory[name]) * 1024 for name in ("MemTotal", "MemAvailable") if name in memory}
    answer["ports_from"] = int(text("/proc/sys/net/ipv4/ip_unprivileged_port_start").strip() or 0)
    answer["bare"] = "MUSTER_ROOT" in os.environ  # no engine sets its limits
    answer["pace"] = pace()
    answer["threads"] = [threads(), THREADS]
    answer["denied"] = answer["threads"][0] < THREADS and denied()
    most = [text(path).strip() for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")]
    answer["pids"] = min(numbers(most) or [-1])
    limits = [
        text(path).strip() for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    ]
    # With cgroups version 1, the kernel also reports the lowest limit of the control groups above this one.
    limits += re.findall(r"^hierarchical_memory_limit (\d+)", text("/sys/fs/cgroup/memory/memory.stat"), re.M)
    answer["memory"]["limit"] = min(numbers(limits) or [0])
    answer["conntrack"] = numbers(
        text("/proc/sys/net/netfilter/nf_conntrack_" + what).strip() for what in ("count", "max")
    )
    return answer


def numbers(texts):
    """Return those texts that are numbers, as numbers."""
    return [int(each) for each in texts if each.isdigit()]


def denied():
    """Whether a rule (seccomp) forbids clone3, which starts threads: then it fails with EPERM.

    Called without arguments, the kernel itself returns EINVAL.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return any(libc.syscall(call, None, 0) == -1 and ctypes.get_errno() == errno.EPERM for call in CLONE3)


def threads():
    """Return how many of THREADS threads can run together, with stacks of the default size (the stack limit)."""
    own, go, started = threading.stack_size(0), threading.Event(), []
    try:
        while len(started) < THREADS:
            thread = threading.Thread(target=go.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    finally:
        go.set()
        threading.stack_size(own)
    for thread in started:
        thread.join()
    return len(started)


def pace():
    """Measure how much CPU this process gets: elapsed seconds, seconds of CPU in them, and how busy the host was.

    There is no other way to see a CPU limit of a control group above this process's own.
    """
    began, before, seconds, used = time.monotonic(), time.process_time(), 0.0, 0.0
    # A process that gets no CPU for a moment is not necessarily slow: if it seems slow, measure five times as much.
    while seconds < PACE_MOST_S and used < (PACE_S if used > seconds / 2 else 5 * PACE_S):
        seconds, used = time.monotonic() - began, time.process_time() - before
    return [round(seconds, 4), round(used, 4), max(os.getloadavg()[0], _running())]


def _running():
    """Return how many of this machine's threads want a core now. The load average of a minute reacts too slowly."""
    try:
        return float(text("/proc/loadavg").split()[3].partition("/")[0])
    except (IndexError, ValueError):
        return 0.0


def working_folder():
    """Return the current working folder; empty if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def mounts(wanted):
    """Return a text for each path: r if this process may read it, w if it may write to it, as the file system decides.

    Then o if its file system is read-only, and f if it is a file or e if it is an empty folder.
    """
    return {path: mount(path) for path in wanted}


def mount(path):
    """Return the letters for one path; see `mounts`."""
    folder = os.path.isdir(path)
    may = "r" * os.access(path, os.R_OK | os.X_OK * folder) + "w" * os.access(path, os.W_OK)
    try:
        only = "o" * bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        if folder:
            with os.scandir(path) as entries:
                return may + only + "e" * (next(entries, None) is None)
        return may + only + "f" * os.path.isfile(path)
    except OSError:
        return may


def leftovers():
    """Return the processes on this host that belong to a distributed run: [pid, age in seconds, command].

    If Muster started the run, MUSTER_RUN_ID=... is put before the command.
    """
    rows, uptime = [], float(text("/proc/uptime").split()[0] or 0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = text("/proc/%s/cmdline" % pid).split("\0")
        first = next((place for place, word in enumerate(words) if LAUNCHER.fullmatch(word)), -1)
        if first < 0 or any(map(SENDER.fullmatch, words[:first])):
            continue
        if int(pid) == os.getpid() or namespace(pid) != namespace("self"):
            continue
        command = " ".join(words).strip()
        stat = text("/proc/%s/stat" % pid).rpartition(")")[2].split()
        if len(stat) > 19:
            age = uptime - int(stat[19]) / os.sysconf("SC_CLK_TCK")
            run = re.search(r"(?:^|\0)(MUSTER_RUN_ID=[\w-]{1,80})\0", text("/proc/%s/environ" % pid))
            rows.append([int(pid), round(age, 1), ("%s " % run.group(1) if run else "") + command[:100]])
    return rows


def reserved():
    """Return the reserved local ports, as ranges: a program gets one only if it asks for that port."""
    words = text("/proc/sys/net/ipv4/ip_local_reserved_ports").strip().split(",")
    ends = [word.split("-") for word in words if word]
    return [[int(each[0]), int(each[-1])] for each in ends][:1000]


def facts(asked):
    """Return everything that this host can find out without the other hosts."""
    name = socket.gethostname()
    names = {name, "localhost", *asked.get("resolve", ())} - {""}
    slow = start_all({"gpus": gpus, "cuda": cuda} if asked.get("gpus", True) else {})
    answers = call_all({"fqdn": socket.getfqdn, "names": lambda: resolve_all(names)})
    port_range = text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return dict(
        answers,
        hostname=name,
        user=os.geteuid(),
        kernel=os.uname().release,
        namespace=namespace("self"),
        boot=text("/proc/sys/kernel/random/boot_id").strip(),
        container=os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"),
        interfaces=interfaces(),
        port_range=[int(port) for port in port_range] or [32768, 60999],
        reserved=reserved(),
        environment={key: value for key, value in os.environ.items() if VARIABLES.fullmatch(key)},
        listening=sorted({row[1] for row in listeners()}),
        software=software(),
        resources=resources(),
        mounts=mounts(asked.get("mounts", ())),
        leftovers=leftovers(),
        rdma=rdma(),
        rdma_devices=os.path.isdir("/dev/infiniband") and bool(os.listdir("/dev/infiniband")),
        verbs=verbs(),
        **slow(GPUS_S),
    )
