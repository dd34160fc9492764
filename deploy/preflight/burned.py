"""From the answers of a burn (trainer/burn.py) to findings, and a line for each GPU. Pure.

A GPU that computes or stores something wrong is a fault. A slow one is a warning, by comparison with its like: GPUs of
the same name, on all hosts. Equal GPUs differ by some percent by themselves, most of all under a power cap.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding, find
from ..core.errors import DeployError
from ..core.program import FAB
from ..core.text import amount, figure, gigabytes_a_second, listed, percent
from .checks import gpus
from .verdict import Verdict

# The share of what its like reach, below which a GPU is slow. Copies share switches and sockets with others.
SLOW, SLOW_COPIES = 0.9, 0.7
# The share of the time for which heat or the power supply may hold a GPU back.
HELD_BACK = 0.1
_BROKEN = re.compile(r"ECC|illegal|launch failure|misaligned|hardware|uncorrectable", re.IGNORECASE)
_FULL = re.compile(r"out of ?memory", re.IGNORECASE)
_PERFORMANCE = "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"
# By measure: its name in a sentence, its unit, the share that is slow.
_MEASURES = {
    "last": ("computes", "TFLOP/s", SLOW),
    "memory": ("moves memory at", "GB/s", SLOW),
    "to": ("receives from the host at", "GB/s", SLOW_COPIES),
    "back": ("sends to the host at", "GB/s", SLOW_COPIES),
}
Gpu = Mapping[str, Any]
# What a GPU has said that came to the end of the burn; a host may leave out anything.
_WHOLE = {"last", "kind", "memory", "filled", "passes"}


@dataclass(frozen=True)
class Burned:
    """What one host answered; or `fault`, why there is no answer."""

    answer: Mapping[str, Any]
    fault: DeployError | None = None

    @property
    def gpus(self) -> Sequence[Gpu]:
        """What each GPU of the host did, by its number in the container."""
        gpus: Sequence[Gpu] = self.answer.get("gpus", ())
        return gpus


def obstacle(verdict: Verdict, can_start: bool) -> str:
    """Why the GPUs are not burned; empty if they are. A burn beside a run would take its memory and its time."""
    busy = [finding.text for finding in verdict.findings if finding.cause == "gpu-busy"]
    if busy:
        return busy[0]
    if not verdict.ok:
        return "first mend what keeps the run from training"
    return "" if can_start else "not all hosts have this image yet"


def added(verdict: Verdict, outcomes: Mapping[str, Burned], kernel: Mapping[str, Sequence[str]]) -> Verdict:
    """The verdict with the outcomes of a burn. `kernel`: the lines that the drivers wrote meanwhile, by host."""
    every = [*findings(outcomes), *_xids(kernel)]
    levels = [finding.level for finding in every]
    worst = next((level for level in (FAULT, UNKNOWN, WARNING) if level in levels), verdict.groups.get("gpus") or "ok")
    return replace(
        verdict,
        findings=(*every, *verdict.findings),
        groups={**verdict.groups, "gpus": worst},
        burned=tuple(lines(outcomes)),
    )


def findings(outcomes: Mapping[str, Burned]) -> list[Finding]:
    """The findings of a burn of all hosts at once."""
    every = [finding for host, outcome in outcomes.items() for finding in _of_host(host, outcome)]
    return [*every, *_slow(outcomes), *_links(outcomes)]


def _xids(kernel: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """What the drivers reported during the burn: no load of ours causes an Xid on a sound GPU."""
    for host, new in kernel.items():
        for line in [line for line in new if gpus.XID.search(line)][:1]:
            where, number = gpus.XID.findall(line)[0]
            yield find(
                "gpu-xid",
                host,
                f"the driver reported Xid {number} for GPU {gpus.pci_bus(where)} during the burn",
                f"on {host}: look up the number in NVIDIA's Xid catalogue; sudo nvidia-smi -r; then burn it again",
                evidence=(line.strip()[-160:],),
            )


def lines(outcomes: Mapping[str, Burned]) -> Iterator[str]:
    """A line for each GPU: what it reached, how warm it got, and what it stored and computed without a fault."""
    for host, outcome in outcomes.items():
        for index, gpu in enumerate(outcome.gpus):
            if gpu.keys() >= _WHOLE:
                yield f"{host} GPU {index} {gpu['name']}: {', '.join(_reached(gpu))}"


def _reached(gpu: Gpu) -> Iterator[str]:
    watched, limits, peers = gpu.get("watched", {}), gpu.get("limits", {}), gpu.get("peers", {})
    yield f"{figure(gpu['last'])} TFLOP/s ({gpu['kind']})"
    yield f"memory {gigabytes_a_second(gpu['memory'])}"
    yield f"PCIe {gigabytes_a_second(gpu['to'], gpu['back'])}"
    if peers:
        yield f"peers {gigabytes_a_second(min(peers.values()), max(peers.values()))}"
    if watched.get("celsius", -1) > 0:
        yield f"{watched['celsius']:.0f} °C"
    if watched.get("watts", -1) > 0:
        yield f"{watched['watts']:.0f} of {limits.get('limit_watts', -1):.0f} W"
    yield f"{amount(gpu['filled'] * 1e9)} of memory tried {gpu['passes']} times"


def _of_host(host: str, outcome: Burned) -> Iterator[Finding]:
    if outcome.fault:
        yield find(
            "proof-failed",
            host,
            f"its GPUs were not burned: {outcome.fault.message.removeprefix(f'{host}: ')}",
            outcome.fault.hint,
            UNKNOWN,
            symptom="",
            group="gpus",
        )
    elif not outcome.gpus and (outcome.answer.get("error") or outcome.answer.get("signal")):
        yield _failed(host, "its GPUs", outcome.answer)
    elif not outcome.gpus:
        yield find(
            "gpu-missing",
            host,
            "nothing was burned: torch sees no GPU there",
            f"on {host}: nvidia-smi",
            WARNING,
            symptom="",
        )
    for index, gpu in enumerate(outcome.gpus):
        if gpu.get("error") or gpu.get("signal"):
            yield _failed(host, f"GPU {index}", gpu)
        yield from _wrong(host, index, gpu)
        yield from _held_back(host, index, gpu)


def _failed(host: str, what: str, ended: Gpu) -> Finding:
    """A GPU that did not come to the end of the burn."""
    words = ended.get("error") or f"its process was ended by signal {ended.get('signal')}"
    text = f"{host}: {what} did not come to the end of the burn: {words}"
    if _FULL.search(words):
        return find("gpu-busy", (host,), text)
    level = FAULT if _BROKEN.search(words) else UNKNOWN
    return find(
        "gpu-faulty",
        (host,),
        text,
        f"on {host}: sudo dmesg | grep -e NVRM -e Xid; sudo nvidia-smi -r, or reboot; if it comes again: replace it",
        level,
    )


def _wrong(host: str, index: int, gpu: Gpu) -> Iterator[Finding]:
    """What came out wrong: words of memory, products, copies to a peer; and errors that the GPU has counted."""
    watched = gpu.get("watched", {})
    wrong = {
        f"{gpu.get('wrong_words', 0)} words of its memory changed by themselves": gpu.get("wrong_words", 0),
        f"{gpu.get('wrong_products', 0)} of {gpu.get('windows', 0)} products came out differently": gpu.get(
            "wrong_products", 0
        ),
        f"it counted {watched.get('uncorrected', 0):.0f} uncorrected memory errors": watched.get("uncorrected", 0),
    }
    fix = f"on {host}: leave this GPU out (gpus in cluster.toml), and replace it; sudo nvidia-smi -q -d ECC"
    if seen := [text for text, times in wrong.items() if times]:
        yield find(
            "gpu-faulty",
            host,
            f"GPU {index} is not to be trusted: {listed(seen)} in the burn",
            fix,
            symptom="losses that jump, or become nan",
        )
    elif watched.get("corrected"):
        yield find(
            "gpu-faulty",
            host,
            f"GPU {index} corrected {watched['corrected']:.0f} memory errors in the burn",
            fix,
            WARNING,
            symptom="a GPU that may fail soon",
        )
    if peers := gpu.get("wrong_peers", ()):
        yield find(
            "gpu-peers", host, f"copies from GPU {index} to GPU {listed(map(str, peers))} arrive with other bytes"
        )


def _held_back(host: str, index: int, gpu: Gpu) -> Iterator[Finding]:
    """What held a GPU back while it was loaded. A power cap at the GPU's own limit is how GPUs work."""
    watched, limits = gpu.get("watched", {}), gpu.get("limits", {})
    slowed = {why: share for why, share in watched.get("slowed", {}).items() if share >= HELD_BACK}
    slowed.pop("power cap", None)
    shown = (
        f"{watched.get('celsius', -1):.0f} °C",
        f"{watched.get('mhz', -1):.0f} of {limits.get('most_mhz', -1):.0f} MHz",
    )
    if slowed:
        why = listed(f"{why} ({percent(share)} of the time)" for why, share in slowed.items())
        yield find(
            "gpu-slow",
            host,
            f"GPU {index} slowed itself down under load: {why}",
            f"on {host}: {_PERFORMANCE}",
            WARNING,
            evidence=shown,
        )
    limit, usual = limits.get("limit_watts", -1), limits.get("usual_limit_watts", -1)
    if 0 < limit < usual:
        yield find(
            "gpu-slow",
            host,
            f"GPU {index} may take {limit:.0f} W, its usual limit is {usual:.0f} W",
            f"on {host}: sudo nvidia-smi -i {index} -pl {usual:.0f}, if its power supply and cooling are made for it",
            WARNING,
            evidence=shown,
        )
    if 0 < gpu.get("gen", -1) < limits.get("most_gen", -1):
        yield find(
            "gpu-slow",
            host,
            f"GPU {index} has PCIe {gpu['gen']:.0f} under load, and it could have {limits['most_gen']:.0f}",
            f"on {host}: lspci -vv (LnkSta); the slot's generation in the BIOS; reseat the card or its riser",
            WARNING,
        )


def _slow(outcomes: Mapping[str, Burned]) -> Iterator[Finding]:
    """GPUs that are behind their like."""
    for measure, (does, unit, share) in _MEASURES.items():
        reached: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
        for host, outcome in outcomes.items():
            for index, gpu in enumerate(outcome.gpus):
                if gpu.get(measure) and not gpu.get("error"):
                    reached.setdefault((gpu["name"], gpu.get("kind", "")), {})[host, index] = gpu[measure]
        for (name, _), values in reached.items():
            # Of two, the better one.
            usual = statistics.median_high(values.values())
            for (host, index), value in values.items():
                if value < share * usual:
                    others = f"others of its kind {figure(usual)} ({name})"
                    fix = (
                        f"on {host}: {_PERFORMANCE}; lspci -vv; {FAB} preflight --hosts {host} --burn 60 tries it again"
                    )
                    yield find("gpu-slow", host, f"GPU {index} {does} {figure(value)} {unit}, {others}", fix, WARNING)


def _links(outcomes: Mapping[str, Burned]) -> Iterator[Finding]:
    """GPUs with fewer NVLinks than their like, and peers to which copies are slower than on other hosts."""
    most: dict[str, int] = {}
    pairs: dict[tuple[str, int, int, str], dict[str, float]] = {}
    for host, outcome in outcomes.items():
        for index, gpu in enumerate(outcome.gpus):
            most[gpu["name"]] = max(most.get(gpu["name"], 0), gpu.get("nvlinks", 0))
            for peer, rate in gpu.get("peers", {}).items():
                pairs.setdefault((gpu["name"], len(outcome.gpus), index, peer), {})[host] = rate
    for host, outcome in outcomes.items():
        for index, gpu in enumerate(outcome.gpus):
            if gpu.get("nvlinks", 0) < most[gpu["name"]]:
                fix = f"on {host}: nvidia-smi nvlink --status; systemctl status nvidia-fabricmanager; reseat its bridge"
                yield find(
                    "gpu-slow",
                    host,
                    f"GPU {index} has {gpu.get('nvlinks', 0)} NVLinks, others of its kind {most[gpu['name']]}",
                    fix,
                    WARNING,
                )
    for (_, _, index, peer), rates in pairs.items():
        usual = statistics.median_high(rates.values())
        for host, rate in rates.items():
            if rate < SLOW_COPIES * usual:
                rates_shown = f"{gigabytes_a_second(rate)}, on hosts alike at {figure(usual)}"
                yield find(
                    "gpu-slow",
                    host,
                    f"copies from GPU {index} to GPU {peer} run at {rates_shown}",
                    f"on {host}: nvidia-smi topo -m; nvidia-smi nvlink --status",
                    WARNING,
                )
