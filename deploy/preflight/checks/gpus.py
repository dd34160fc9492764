"""GPUs, from nvidia-smi and the driver: present, visible to CUDA, fit for the image, healthy, free, alike. Pure.

The number of GPUs may differ between hosts: torchrun adds them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding, find, foremost, unsure
from ...core.text import gpu_memory, in_seconds, last_line, listed, subject
from ...job.option_words import command_of
from ..answers import Answers
from ..probe.facts import GPU_FIELDS
from ..request import Facts
from ..verdict import odd_ones

# A GPU with more than BUSY_MIB in use is busy. A CUDA context and NCCL's buffers need about FREE_MIB.
BUSY_MIB, FREE_MIB = 500, 1024
SLOW_S = 3.0
DRIVER = re.compile(r"NVML|driver|Driver/library")
OF_DRIVER = re.compile(r"(?i)version mismatch|communicate with the NVIDIA driver|driver not loaded")
LOST = re.compile(r"Unable to determine the device handle|GPU is lost|fallen off the bus")
# Return codes of cuInit; findings show other codes as numbers.
NO_DEVICE, FABRIC, NO_COMPAT = 100, 802, 804
RELOAD = "on {host}: reboot, or reload the driver (sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia)"
MEMORY = (
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
    "remapped_rows.pending",
    "remapped_rows.failure",
)

Gpu = Mapping[str, str]


def read(facts: Facts) -> list[Gpu]:
    """Return a host's GPUs, each as nvidia-smi's columns by name; unknown values are empty."""
    rows = (facts.get("gpus") or {}).get("rows") or []
    return [dict(zip(GPU_FIELDS, [*row, *[""] * len(GPU_FIELDS)], strict=False)) for row in rows]


def without_cuda(facts: Facts) -> bool:
    """Whether the image's torch is known to be built without GPU support."""
    return bool(facts["software"].get("cuda") == facts["software"].get("hip", "None") == "None")


def _rocm_version(facts: Facts) -> str:
    """Return the ROCm version that the image's torch was built for; empty if it was built for none."""
    software = facts["software"]
    return str(software["hip"]) if software.get("hip", "None") != "None" and software.get("cuda") == "None" else ""


def check(answers: Answers) -> Iterator[Finding]:
    """Check each host's GPUs, then compare the hosts."""
    rows = {host: read(facts) for host, facts in answers.facts.items()}
    nccl = answers.request.by_nccl
    for host, facts in answers.facts.items():
        if version := _rocm_version(facts):
            yield _rocm(host, version, nccl)
            continue
        gpus = facts.get("gpus") or {}
        if gpus.get("amd") and not gpus.get("devices"):
            text = "it has AMD GPUs, which Muster does not support: its ranks compute on the CPU"
            yield find("gpu-missing", host, text, "hosts with NVIDIA GPUs", WARNING)
        if without_cuda(facts):
            if nccl or rows[host]:
                yield _no_cuda(host, facts, nccl)
            continue
        yield from _driver(host, facts, rows[host])
        yield from _together([(gpu["index"], finding) for gpu in rows[host] for finding in _own_findings(host, gpu)])
        yield from _shared(host, rows[host], answers.request.processes if nccl else 0)
    yield from _slow(rows)
    # A container may have CUDA but no nvidia-smi: such hosts are not compared.
    unlike = {host for host, facts in answers.facts.items() if _without_smi(facts) or without_cuda(facts)}
    yield from _alike({host: listed for host, listed in rows.items() if host not in unlike}, nccl)


def _without_smi(facts: Facts) -> bool:
    """Whether CUDA sees GPUs, but there is no nvidia-smi to list them."""
    return bool((facts.get("gpus") or {}).get("absent") and (facts.get("cuda") or {}).get("count"))


def _rocm(host: str, version: str, nccl: bool) -> Finding:
    return find(
        "torch-without-cuda",
        host,
        f"torch is built for ROCm {version}, but Muster does not support AMD GPUs",
        "hosts with NVIDIA GPUs, and an image whose torch has CUDA",
        FAULT if nccl else WARNING,
    )


def _no_cuda(host: str, facts: Facts, nccl: bool) -> Finding:
    return find(
        "torch-without-cuda",
        host,
        f"{' '.join(('torch', *facts['software'].get('torch', '').split()))} is built without CUDA: its GPUs stay idle",
        level=FAULT if nccl else WARNING,
        symptom="`ProcessGroupNCCL is only supported with GPUs, no GPUs found!`, or training on the CPU",
    )


def _driver(host: str, facts: Facts, rows: list[Gpu]) -> Iterator[Finding]:
    """Yield findings about driver faults that keep CUDA from starting, or make its start slow."""
    message, driver = facts.get("gpus") or {}, facts.get("cuda")
    error, code = message.get("error", ""), (driver or {}).get("code")
    first = last_line(error, "")

    if "timeout" in (error, (driver or {}).get("error")):
        yield find("gpu-silent", host, "the GPU driver does not answer", level=UNKNOWN)
    elif LOST.search(error):
        yield find("gpu-lost", host, first)
    elif error and DRIVER.search(error):
        finding = find("gpu-driver", host, first, RELOAD.format(host=host))
        yield finding if OF_DRIVER.search(error) else unsure(finding)
    elif message.get("devices") and code != 0 and error:
        fix = f"on {host}: run nvidia-smi, then run it in a container"
        finding = find("gpu-runtime", (host,), "GPUs that a container may not use", fix)
        yield unsure(finding, f"{host}: nvidia-smi says: {first}")
    elif message.get("devices") and code != 0:
        fix = "install nvidia-container-toolkit, docker run --gpus all"
        yield find("gpu-runtime", host, "has GPUs, but no nvidia-smi where training runs", fix)
    elif rows and driver == {} and facts.get("container"):
        fix = "docker run --env NVIDIA_DRIVER_CAPABILITIES=compute,utility (in cluster.toml: [job.environment])"
        yield find("gpu-runtime", host, "has GPUs, but no libcuda.so.1 where training runs", fix)
    elif rows:
        yield from _cuda(host, facts, rows)
        if message.get("seconds", 0) >= SLOW_S and any(gpu["persistence_mode"] == "Disabled" for gpu in rows):
            yield find(
                "gpu-persistence",
                host,
                f"the GPU driver takes {in_seconds(message['seconds'])} to wake up: persistence mode is off",
                level=WARNING,
            )


def _cuda(host: str, facts: Facts, rows: list[Gpu]) -> Iterator[Finding]:
    """Check cuInit's answer, the driver's CUDA against the image's, and the image's against the GPUs."""
    code = (facts.get("cuda") or {}).get("code")
    seen = (f"cuInit: {code}",) if code else ()
    if code == FABRIC or (code != 0 and any(gpu["fabric.state"] in ("In Progress", "Not Started") for gpu in rows)):
        yield find(
            "fabric-manager",
            host,
            "the NVSwitch fabric is not ready: nvidia-fabricmanager is not running",
            evidence=seen,
        )
    elif code == NO_DEVICE:
        hidden = facts["environment"].get("CUDA_VISIBLE_DEVICES")
        why = "the container gets none of them" if hidden is None else f"CUDA_VISIBLE_DEVICES is {hidden!r}"
        if any(gpu["mig.mode.current"] == "Enabled" for gpu in rows):
            why = "they are split (MIG), and the container got no instance"
        yield find("gpu-hidden", host, f"has {len(rows)} GPUs, but CUDA sees none: {why}", evidence=seen)
    elif code == NO_COMPAT or driver_too_old(facts):
        yield find(
            "driver-old",
            host,
            f"driver {rows[0]['driver_version']} is too old for torch with CUDA {cuda_wanted(facts)}",
            f"on {host}: install driver {least_driver(facts)} or newer; or use an image with an older CUDA",
            evidence=(*seen, *cuda_of_driver(facts)),
        )
    elif code:
        yield find(
            "gpu-driver",
            host,
            f"the GPU driver does not start: cuInit returns {code}",
            RELOAD.format(host=host),
            evidence=seen,
        )
    else:
        named, count = facts["environment"].get("CUDA_VISIBLE_DEVICES", ""), (facts.get("cuda") or {}).get("count")
        if count and count < len(named.split(",")):
            parts = "a process gets only one part of a GPU (MIG)" if named.startswith("MIG-") else ""
            why = parts or "CUDA stops at a number that does not exist"
            yield find(
                "gpu-hidden",
                host,
                f"CUDA_VISIBLE_DEVICES is {named}, and CUDA sees {count}: {why}",
                "choose one of them for each run" if parts else "correct CUDA_VISIBLE_DEVICES, or unset it",
                WARNING,
                symptom="`invalid device ordinal`, or fewer ranks",
            )
        yield from _arch(host, facts, [gpu["compute_cap"] for gpu in rows])


def _own_findings(host: str, gpu: Gpu) -> Iterator[Finding]:
    yield from _busy(host, gpu)
    yield from _memory(host, gpu)
    cells = set(gpu.values())
    if "[GPU is lost]" in cells:
        yield find("gpu-lost", host, f"GPU {gpu['index']} is lost")
    elif "[GPU requires reset]" in cells:
        reset = f"on {host}: sudo nvidia-smi -r -i {gpu['index']}, or reboot"
        yield find("gpu-faulty", host, f"GPU {gpu['index']} needs a reset", reset)


def _together(findings: Sequence[tuple[str, Finding]]) -> Iterator[Finding]:
    """Merge the findings of a host's GPUs with the same fault into one."""
    kinds: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for index, finding in findings:
        kinds.setdefault((finding.cause, finding.level), []).append((index, finding))
    for (_, first), *others in kinds.values():
        more = f"; the same for GPU {listed(index for index, _ in others)}" if others else ""
        yield replace(first, text=first.text + more)


def _busy(host: str, gpu: Gpu) -> Iterator[Finding]:
    used, total = _number(gpu["memory.used"]), _number(gpu["memory.total"])
    alone = gpu["compute_mode"].startswith("Exclusive")
    if gpu["compute_mode"] == "Prohibited":
        yield find(
            "gpu-prohibited",
            host,
            f"GPU {gpu['index']} is not allowed to compute",
            f"on {host}: sudo nvidia-smi -i {gpu['index']} -c 0",
            evidence=("compute_mode: Prohibited",),
        )
    elif used > BUSY_MIB:
        full = alone or total - used < FREE_MIB
        why = f"has {gpu_memory(used)} of {gpu_memory(total)} in use"
        why = "is held by another process alone (Exclusive_Process)" if alone else why
        symptom = "`devices are busy or unavailable`" if alone else "CUDA out of memory at the start"
        yield find(
            "gpu-busy",
            host,
            f"GPU {gpu['index']} {why}",
            f"{command_of('gpus', hosts=host)} shows who uses it",
            FAULT if full else WARNING,
            symptom=symptom,
        )


def _memory(host: str, gpu: Gpu) -> Iterator[Finding]:
    """Yield findings about memory errors. GPUs that remap rows (Ampere or later) survive most; others need a reset."""
    errors, failed = _number(gpu["ecc.errors.uncorrected.volatile.total"]), gpu["remapped_rows.failure"] == "Yes"
    remaps = gpu["remapped_rows.failure"] in ("Yes", "No")
    pending = "Yes" in (gpu["remapped_rows.pending"], gpu["retired_pages.pending"])
    if not (errors or failed or pending):
        return
    seen = tuple(f"{name}: {gpu[name]}" for name in MEMORY if gpu[name] not in ("", "0", "No", "[N/A]"))
    what = "could not replace bad memory" if failed else f"has {errors} uncorrected memory errors"
    what = what if failed or errors else "needs a reset to replace bad memory"
    fix = f"on {host}: replace it" if failed else f"on {host}: sudo nvidia-smi -r -i {gpu['index']}"
    yield find(
        "gpu-faulty",
        host,
        f"GPU {gpu['index']} {what}",
        fix,
        FAULT if failed or not remaps else WARNING,
        evidence=seen,
        symptom="`uncorrectable ECC error encountered`",
    )


def _shared(host: str, rows: list[Gpu], processes: int) -> Iterator[Finding]:
    if 0 < len(rows) < processes:
        yield find(
            "gpus-shared", host, f"{processes} ranks for {len(rows)} GPUs", f"processes = {len(rows)} for {host}"
        )


def _slow(rows: Mapping[str, list[Gpu]]) -> Iterator[Finding]:
    """Yield warnings for GPUs that are slow because of heat, power, or a bad fit in their slot.

    Only fewer than half of the PCIe lanes count: many machines give their second GPU half of the lanes.
    """
    widest: dict[str, int] = {}
    for gpu in (gpu for slow in rows.values() for gpu in slow):
        widest[gpu["name"]] = max(widest.get(gpu["name"], 0), _lanes(gpu))
    for host, slow in rows.items():
        for gpu in (gpu for gpu in slow if 0 < 2 * _lanes(gpu) < widest[gpu["name"]]):
            yield find(
                "gpu-slow",
                host,
                f"GPU {gpu['index']} has {_lanes(gpu)} PCIe lanes, other GPUs of its kind have {widest[gpu['name']]}",
                f"on {host}: lspci -vv; reseat it",
                WARNING,
            )
        hot = [gpu["index"] for gpu in slow if gpu["clocks_throttle_reasons.hw_slowdown"] == "Active"]
        if hot:
            yield find(
                "gpu-slow",
                host,
                f"GPU {listed(hot)} throttles itself: too hot, or too little power",
                f"on {host}: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
                WARNING,
            )


def _lanes(gpu: Gpu) -> int:
    return _number(gpu["pcie.link.width.current"])


def _number(cell: str) -> int:
    """Return the number in a cell; 0 if nvidia-smi has no value."""
    return int(cell) if cell.isdigit() else 0


def _alike(rows: dict[str, list[Gpu]], nccl: bool) -> Iterator[Finding]:
    kinds = {host: ", ".join(sorted({gpu["name"] for gpu in host_gpus})) for host, host_gpus in rows.items()}
    if len(set(kinds.values())) < 2:
        return
    none = tuple(host for host, kind in kinds.items() if not kind)
    shown = [f"{host}: {len(rows[host])} GPUs ({kind or 'none'})" for host, kind in kinds.items()]
    if none:
        yield find(
            "gpu-missing",
            none,
            f"{subject(none, 'shows', 'show')} no GPU, but the others do",
            level=FAULT if nccl else WARNING,
            evidence=shown,
        )
    else:
        odd = odd_ones(kinds)
        theirs = listed(foremost(shown, odd, 4))
        text = (
            f"the GPUs differ: {theirs}: the slowest one limits the speed of each step, the smallest memory "
            "limits the batch"
        )
        yield find("gpus-differ", odd, text, level=WARNING, evidence=shown)


# From CUDA 11 on, any driver for the same major version works. The oldest drivers for Linux:
MINOR_COMPATIBLE = 11
LEAST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# GPUs from this compute capability on need at least this CUDA version: older versions have no code for them.
NEEDS = (((10, 0), (12, 8)), ((9, 0), (11, 8)), ((8, 0), (11, 0)), ((7, 5), (10, 0)))
# CUDA 13 has no code for GPUs older than Turing.
DROPPED = ((13, 0), (7, 5))


def cuda_wanted(facts: Facts) -> str:
    """Return the CUDA version of the image's torch; empty if unknown."""
    setting = str(facts["software"].get("cuda", ""))
    return setting if _pair(setting) else ""


def driver_too_old(facts: Facts) -> bool:
    """Whether the driver is too old for torch's CUDA. An unknown version does not count as too old."""
    need, has = _pair(cuda_wanted(facts)), _has(facts)
    if not need or not has:
        return False
    return has[0] < need[0] if need[0] >= MINOR_COMPATIBLE else has < need


def least_driver(facts: Facts) -> str:
    """Return the oldest driver for the image's CUDA, in words."""
    need = _pair(cuda_wanted(facts))
    return LEAST_DRIVER.get(need[0] if need else 0, f"for CUDA {cuda_wanted(facts)}")


def cuda_of_driver(facts: Facts) -> tuple[str, ...]:
    """Return the CUDA version that the host's driver supports, as evidence; empty if unknown."""
    has = _has(facts)
    return (f"the driver supports CUDA {has[0]}.{has[1]}",) if has else ()


def _arch(host: str, facts: Facts, capabilities: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding if the image's CUDA has no code for a GPU.

    For a build that is not PyTorch's own it is a warning: it may contain code (PTX) that the driver can translate.
    """
    cuda = _pair(cuda_wanted(facts))
    odd = sorted({text for text in capabilities if cuda and (entry := _pair(text)) and not _knows(cuda, entry)})
    if odd:
        official = "+cu" in facts["software"].get("torch", "")
        yield find(
            "gpu-arch",
            host,
            f"torch with CUDA {cuda_wanted(facts)} has no code for GPUs with compute capability {', '.join(odd)}",
            level=FAULT if official else WARNING,
        )


def _knows(cuda: tuple[int, int], capability: tuple[int, int]) -> bool:
    if cuda >= DROPPED[0] and capability < DROPPED[1]:
        return False
    return all(cuda >= need for since, need in NEEDS if capability >= since)


def _has(facts: Facts) -> tuple[int, int] | None:
    """Return the CUDA version that a driver supports: 12040 means 12.4."""
    version = (facts.get("cuda") or {}).get("version") or 0
    return (version // 1000, version % 1000 // 10) if version else None


def _pair(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    minor = minor.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


# For a part of a GPU (MIG), ` GPU-I:05` follows the address. Xid 154 ends with the action that is needed: 0x0 is none.
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+)[^)]*\): (?!154,.* to 0x0 )(\d+)")
LOADED = re.compile(r"NVRM: loading")
# From NVIDIA's catalogue: unreliable memory until a reset; other errors that need a reset, a reboot or a person.
XID_MEMORY = {48: "double bit ECC error", 64: "row remapping failed", 95: "uncontained ECC error", 140: "ECC error"}
XID_GRAVE = {
    62: "internal halt",
    74: "NVLink error",
    79: "fallen off the bus",
    119: "GSP timeout",
    120: "GSP error",
    154: "a reset or a reboot is due",
}


def check_xids(answers: Answers) -> Iterator[Finding]:
    """Yield findings about the driver's messages since it was loaded, of kinds that no application can cause."""
    for host, facts in answers.facts.items():
        lines = lines_since_loaded(answers.control.get(host, {}).get("kernel") or ())
        errors = {pci_bus(gpu["pci.bus_id"]): gpu["ecc.errors.uncorrected.volatile.total"] for gpu in read(facts)}
        for where, number in dict.fromkeys(
            (pci_bus(row[1]), int(row[2])) for line in lines if (row := XID.search(line))
        ):
            line = next(line for line in reversed(lines) if XID.search(line) and f": {number}" in line)
            if number in XID_MEMORY and errors.get(where, "") not in ("", "0", "[N/A]"):
                yield _xid(host, where, number, XID_MEMORY[number], line, FAULT)
            elif number in XID_GRAVE:
                yield _xid(host, where, number, XID_GRAVE[number], line, WARNING)


def lines_since_loaded(lines: Sequence[str]) -> list[str]:
    """Return the lines since the driver was last loaded."""
    starts = [place for place, line in enumerate(lines) if LOADED.search(line)]
    return list(lines[starts[-1] :] if starts else lines)


def pci_bus(text: str) -> str:
    """Return a PCI address in the same form for nvidia-smi's (`00000000:3B:00.0`) and the log's (`0000:3b:00`)."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def _xid(host: str, where: str, number: int, words: str, line: str, level: str) -> Finding:
    return find(
        "gpu-xid",
        host,
        f"the driver has reported Xid {number} ({words}) for GPU {where}",
        level=level,
        evidence=(line.strip()[-160:],),
        symptom="a hang, or `CUDA error: uncorrectable ECC error encountered`",
    )
