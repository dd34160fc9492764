"""Recordings of what hosts with GPUs and RDMA devices report; each fault is one change of a recording.

A recording (lab/hosts/*.txt) has a section for each source, after a line `== NAME`:
    gpus          nvidia-smi's rows (GPU_FIELDS of deploy/preflight/probe/facts.py), or other text; `code N`: exit code
    unknown       the columns that this nvidia-smi does not know
    cuda          version, cuInit's code and the count of GPUs, from the driver's library
    infiniband    files under /sys/class/infiniband, one line each: PATH:TEXT
    kernel        the driver's lines in the kernel log
    torch         the lines of torch/version.py
    environment   variables
    host          `container`, `devices` (/dev/infiniband), `memlock BYTES`, the `seconds` that nvidia-smi took
The probe's own readers read them, from a stand-in for nvidia-smi and a folder in place of /sys.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.causes.finding import FAULT, WARNING
from deploy.preflight import PreflightRequest, judge
from deploy.preflight.probe import facts as probe_facts
from lab.answers import HOSTS, answers

FOLDER = Path(__file__).parent / "hosts"
REQUEST = PreflightRequest(style="torchrun", endpoint="10.0.0.1", backend="nccl")
# A stand-in for nvidia-smi: it answers from a file, and rejects unknown columns.
SMI = r"""#!/bin/sh
asked=${1#--query-gpu=}; here=${0%/*}
for name in $(cat "$here/unknown"); do
    case ",$asked," in *",$name,"*) echo "Field \"$name\" is not a valid field to query."; exit 2 ;; esac
done
cat "$here/gpus"; exit "$(cat "$here/code")"
"""


@dataclass(frozen=True)
class Case:
    """One recording in which `old` becomes `new` in a section; the cause that is right, and how severe it is.

    differ: the host's only fault is that it differs from the others.
    """

    name: str
    base: str
    section: str
    old: str
    new: str
    cause: str
    level: str = FAULT
    differ: bool = False


CASES = (
    Case("driver too old for the image's CUDA", "h100", "cuda", "version 12080", "version 11080", "driver-old"),
    Case("image of the next CUDA", "h100", "torch", "cuda: Optional[str] = '12.4'", "cuda: Optional[str] = '13.0'",
         "driver-old"),
    Case("compatibility package on a GPU that has none", "rtx", "cuda", "code 0", "code 804", "driver-old"),
    Case("Blackwell with torch for CUDA 12.4", "h100", "gpus", ", 9.0,", ", 10.0,", "gpu-arch"),
    Case("image of a later CUDA on an old driver", "v100", "torch", "11.8", "12.1", "driver-old"),
    Case("torch without CUDA", "h100", "torch", "cuda: Optional[str] = '12.4'", "cuda: Optional[str] = None",
         "torch-without-cuda"),
    Case("driver updated, module not reloaded", "h100", "gpus", "*",
         "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127\ncode 18",
         "gpu-driver"),
    Case("NVML lost in the container", "h100", "gpus", "*", "Failed to initialize NVML: Unknown Error\ncode 255",
         "gpu-driver"),
    Case("driver's module not loaded", "rtx", "gpus", "*",
         "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
         "NVIDIA driver is installed and running.\ncode 9", "gpu-driver"),
    Case("GPU fell off the bus", "h100", "gpus", "*",
         "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\ncode 15", "gpu-lost"),
    Case("GPU lost, and its Xid in the log", "rtx", "gpus", "*",
         "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.  Reboot the system to recover "
         "this GPU\ncode 15", "gpu-lost"),
    Case("GPU lost, and listed all the same", "h100", "gpus", "Not Active", "[GPU is lost]", "gpu-lost"),
    Case("GPU that waits for a reset", "h100", "gpus", "Not Active", "[GPU requires reset]", "gpu-faulty"),
    Case("no GPU found by the driver", "h100", "gpus", "*", "No devices were found\ncode 6", "gpu-missing"),
    Case("cuInit fails", "h100", "cuda", "code 0", "code 999", "gpu-driver"),
    Case("fabric manager does not run", "h100", "cuda", "code 0", "code 802", "fabric-manager"),
    Case("CUDA_VISIBLE_DEVICES empty", "h100", "cuda", "code 0", "code 100", "gpu-hidden"),
    Case("CUDA_VISIBLE_DEVICES with one too many", "rtx", "environment", "*", "CUDA_VISIBLE_DEVICES=0,1", "gpu-hidden",
         WARNING),
    Case("no library of the driver in the container", "h100", "cuda", "*", "", "gpu-runtime"),
    Case("GPU held by another", "h100", "gpus", "81559, 4,", "81559, 80912,", "gpu-busy"),
    Case("GPU half held by another", "h100", "gpus", "81559, 4,", "81559, 40912,", "gpu-busy", WARNING),
    Case("exclusive GPU held", "rtx", "gpus", "24564, 312, 550.127.05, 00000000:01:00.0, [N/A], [N/A], [N/A], [N/A], "
         "Default", "24564, 2312, 550.127.05, 00000000:01:00.0, [N/A], [N/A], [N/A], [N/A], Exclusive_Process",
         "gpu-busy"),
    Case("computing prohibited", "rtx", "gpus", "Default", "Prohibited", "gpu-prohibited"),
    Case("row remapping failed", "h100", "gpus", "3B:00.0, 0, [N/A], No, No", "3B:00.0, 0, [N/A], No, Yes",
         "gpu-faulty"),
    Case("page retirement pending", "v100", "gpus", "3B:00.0, 0, No", "3B:00.0, 2, Yes", "gpu-faulty"),
    Case("row remapping pending", "h100", "gpus", "3B:00.0, 0, [N/A], No, No", "3B:00.0, 0, [N/A], Yes, No",
         "gpu-faulty", WARNING),
    Case("uncorrected errors, contained", "h100", "gpus", "3B:00.0, 0, ", "3B:00.0, 3, ", "gpu-faulty", WARNING),
    Case("NVLink errors in the log", "h100", "kernel", "*",
         "[7265.118] NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on "
         "link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "gpu-xid", WARNING),
    Case("GSP timeouts in the log", "h100", "kernel", "*",
         "[16310.2] NVRM: Xid (PCI:0000:86:00): 119, pid=70214, name=python, Timeout after 6s of waiting for RPC "
         "response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).", "gpu-xid", WARNING),
    Case("a part of a GPU in the log", "h100", "kernel", "*",
         "[7265.1] NVRM: Xid (PCI:0000:3b:00 GPU-I:01): 79, GPU has fallen off the bus.", "gpu-xid", WARNING),
    Case("a reboot is due", "h100", "kernel", "*", "[171167.6] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action "
         "changed from 0x0 (None) to 0x2 (Node Reboot Required)", "gpu-xid", WARNING),
    Case("GPU too hot", "h100", "gpus", "Not Active", "Active", "gpu-slow", WARNING),
    Case("GPU with four lanes", "rtx", "gpus", ", 16, Not", ", 4, Not", "gpu-slow", WARNING),
    Case("another kind of GPU", "h100", "gpus", "H100 80GB HBM3", "H100 PCIe", "gpus-differ", WARNING, True),
    Case("driver slow to wake up", "rtx", "host", "seconds 0.4", "seconds 6.2", "gpu-persistence", WARNING),
    Case("all InfiniBand ports down", "h100", "infiniband", "state:4: ACTIVE", "state:1: DOWN", "rdma-down"),
    Case("no subnet manager", "h100", "infiniband", "state:4: ACTIVE", "state:2: INIT", "rdma-down"),
    Case("one InfiniBand port down", "h100", "infiniband", "mlx5_1/ports/1/state:4: ACTIVE",
         "mlx5_1/ports/1/state:1: DOWN", "rdma-slow", WARNING),
    Case("slower link", "h100", "infiniband", "mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)",
         "mlx5_0/ports/1/rate:100 Gb/sec (4X EDR)", "rdma-slow", WARNING),
    Case("no RDMA device", "h100", "infiniband", "*", "", "rdma-differs"),
    Case("another link layer", "h100", "infiniband", "link_layer:InfiniBand", "link_layer:Ethernet", "rdma-differs",
         differ=True),
    Case("no /dev/infiniband in the container", "h100", "host", "devices", "", "rdma-hidden"),
    Case("memlock", "h100", "host", "memlock -1", "memlock 65536", "memlock"),
    Case("RDMA switched off on one host", "h100", "environment", "NCCL_DEBUG=WARN", "NCCL_IB_DISABLE=1",
         "rdma-differs"),
    Case("NCCL_NET=IB without a device", "v100", "environment", "*", "NCCL_NET=IB", "rdma-device"),
    Case("NCCL_IB_HCA of another machine", "h100", "environment", "NCCL_DEBUG=WARN", "NCCL_IB_HCA==ibp12s0,ibp141s0",
         "rdma-device"),
    Case("RoCE without an address", "roce", "infiniband", "0000:0000:0000:0000:0000:ffff:0a0a:0001",
         "0000:0000:0000:0000:0000:0000:0000:0000", "rdma-gid"),
    Case("GID index without an address", "roce", "environment", "INDEX=3", "INDEX=7", "rdma-gid"),
    Case("GID index of RoCE v1", "roce", "infiniband", "types/3:RoCE v2", "types/3:IB/RoCE v1", "rdma-gid",
         differ=True),
)  # fmt: skip

# Odd but healthy hosts: (name, recording, section, old, new). Only warnings are allowed, and none with a cause listed
# above.
WELL = (
    ("eight H100 with NDR InfiniBand", "h100", "host", "*", None),
    ("two A100 with RoCE", "roce", "host", "*", None),
    ("V100 and a driver that knows fewer columns", "v100", "host", "*", None),
    ("a workstation", "rtx", "host", "*", None),
    ("torch's CUDA newer than the driver's, same major version", "h100", "cuda", "version 12080", "version 12020"),
    ("fewer GPUs than the peers", "h100", "gpus", "1, NVIDIA H100", None),
    ("a build of torch that carries code to translate", "h100", "torch", "2.6.0+cu124", "2.6.0a0+ecf3bae40a"),
    ("compatibility package in use", "h100", "torch", "'12.4'", "'12.8'"),
    ("a desktop on the GPU", "rtx", "gpus", "24564, 312", "24564, 420"),
    ("Xids of an application", "h100", "kernel", "*",
     "[402.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=8123, name=python, Ch 0000001b, intr 00000000. MMU Fault\n"
     "[402.2] NVRM: Xid (PCI:0000:3b:00): 43, pid=8123, name=python, Ch 0000001b\n"
     "[407.2] NVRM: Xid (PCI:0000:3b:00): 13, pid=8200, Graphics SM Warp Exception on (GPC 0, TPC 0): Out Of Range"),
    ("a contained error in a part of a GPU, and one that a reset has mended", "h100", "kernel", "*",
     "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No\n"
     "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
    ("a GPU without its infoROM", "rtx", "gpus", "16, Not Active",
     "16, Not Active\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\ncode 14"),
    ("an Xid before the driver was reloaded", "h100", "kernel", "*",
     "[88.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.\n"
     "[91.4] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 02:02:04 UTC 2025"),
    ("a memory error that a reset has mended", "h100", "kernel", "*",
     "[88.1] NVRM: Xid (PCI:0000:3b:00): 95, pid=3218, name=python, Uncontained: LTC TAG (0x2,0x0). RST: Yes"),
    ("a second device without a cable", "roce", "infiniband", "mlx5_bond_0/ports/1/link_layer:Ethernet",
     "mlx5_bond_0/ports/1/link_layer:Ethernet\nmlx5_2/ports/1/state:1: DOWN\nmlx5_2/ports/1/link_layer:Ethernet\n"
     "mlx5_2/ports/1/rate:40 Gb/sec (4X QDR)"),
    ("a prefix in NCCL_IB_HCA", "h100", "environment", "NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5"),
    ("a storage port with RoCE beside InfiniBand", "h100", "infiniband", "mlx5_1/ports/1/link_layer:InfiniBand",
     "mlx5_1/ports/1/link_layer:InfiniBand\nmlx5_9/ports/1/state:1: DOWN\nmlx5_9/ports/1/rate:100 Gb/sec (4X EDR)\n"
     "mlx5_9/ports/1/link_layer:Ethernet"),
)  # fmt: skip


def sections(name):
    """A recording's sections by their names."""
    rows = re.split(r"^== (\w+)\n", (FOLDER / f"{name}.txt").read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(rows[1::2], rows[2::2], strict=True)}


def changed(sections, section, old, new):
    """The sections with one of them changed.

    `old` may be `*`, which means the whole section; if `new` is None, the lines that contain `old` are removed.
    """
    text = sections.get(section, "")
    if new is None:
        text = "\n".join(line for line in text.splitlines() if not old or old not in line)
    else:
        assert old == "*" or old in text, f"{old!r} is not in {section}"
        text = new if old == "*" else text.replace(old, new)
    return {**sections, section: text}


@contextmanager
def _stand_in(gpus, unknown, infiniband):
    """A folder with an nvidia-smi that answers as recorded, first in PATH, and a folder in place of /sys."""
    before = os.environ["PATH"], probe_facts.INFINIBAND
    with TemporaryDirectory() as folder:
        home, rows = Path(folder), gpus.splitlines()
        code = next((row.removeprefix("code ") for row in rows if row.startswith("code ")), "0")
        answer = "".join(f"{row}\n" for row in rows if not row.startswith("code "))
        files = {"gpus": answer, "code": code, "unknown": unknown, "nvidia-smi": SMI}
        for name, text in files.items():
            (home / name).write_text(text)
        (home / "nvidia-smi").chmod(0o755)
        for row in infiniband.splitlines():
            name, _, text = row.partition(":")
            path = home / "infiniband" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        os.environ["PATH"], probe_facts.INFINIBAND = f"{home}:{before[0]}", str(home / "infiniband")
        try:
            yield
        finally:
            os.environ["PATH"], probe_facts.INFINIBAND = before


def facts(sections):
    """What the probe would report about such a host, without its network."""
    return deepcopy(_facts(tuple(sections.items())))


@cache
def _facts(items):
    sections = dict(items)
    probed = deepcopy(_probed(*(sections.get(name, "") for name in ("gpus", "unknown", "infiniband"))))
    cuda, host = sections["cuda"].split(), sections["host"].split()
    probed["cuda"] = {name: int(value) for name, value in zip(cuda[::2], cuda[1::2], strict=True)}
    probed["gpus"]["seconds"] = float(host[host.index("seconds") + 1])
    software = {"python": "3.11.7", **probe_facts.torch_version(sections["torch"])}
    environment = dict(line.split("=", 1) for line in sections.get("environment", "").splitlines())
    memlock = int(host[host.index("memlock") + 1])
    return {
        **probed, "software": software, "environment": environment, "container": "container" in host,
        "rdma_devices": "devices" in host, "memlock": memlock,
    }  # fmt: skip


@cache
def _probed(gpus, unknown, infiniband):
    with _stand_in(gpus, unknown, infiniband):
        return {"gpus": probe_facts.gpus(), "rdma": probe_facts.rdma()}


def judged(hosts, request=REQUEST):
    """The verdict on hosts that each report their recording, in this order; their network is healthy."""
    names = HOSTS[: len(hosts)]
    seen = answers(request)
    known, kernel = {}, {}
    for name, sections in zip(names, hosts, strict=True):
        read = facts(sections)
        limits = {**seen.facts[name]["resources"], "memlock": [read.pop("memlock")] * 2}
        known[name] = {**seen.facts[name], **read, "resources": limits}
        kernel[name] = {"kernel": sections.get("kernel", "").splitlines()}
    links = tuple(link for link in seen.links if link.source in names and link.target in names)
    parts = {"listens": seen.listens, "clocks": seen.clocks}
    parts = {part: {name: value[name] for name in names} for part, value in parts.items()}
    return judge(replace(seen, hosts=names, facts=known, links=links, control=kernel, **parts))


def tried(case, count, place):
    """A verdict with the fault on one of `count` hosts, and the hosts that it should name.

    A fault that comes with the image is on all hosts.
    """
    well = sections(case.base)
    broken = changed(well, case.section, case.old, case.new)
    if case.section == "torch":
        return judged([broken] * count), HOSTS[:count]
    hosts = [broken if number == place else well for number in range(count)]
    # If two hosts differ, nothing shows which of them is the odd one.
    return judged(hosts), HOSTS[:2] if case.differ and count == 2 else (HOSTS[place],)


def first(verdict, level):
    """The first finding of a level; for a fault, this is the named cause, whether it is sure or not."""
    return verdict.first if level == FAULT else next(iter(verdict.warnings), None) or verdict.first
