"""Whether a driver, an image's torch and a GPU fit together, by NVIDIA's rules. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...causes.finding import FAULT, WARNING, Finding, find

# From CUDA 11 on, any driver of the same major version works. The oldest ones for Linux:
MINOR_COMPATIBLE = 11
LEAST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# GPUs from this compute capability on need at least this CUDA: older ones have no code for them.
NEEDS = (((10, 0), (12, 8)), ((9, 0), (11, 8)), ((8, 0), (11, 0)), ((7, 5), (10, 0)))
# CUDA 13 has no code for GPUs older than Turing.
DROPPED = ((13, 0), (7, 5))


def wanted(facts: Mapping[str, Any]) -> str:
    """The CUDA version of the image's torch, empty if it is not known."""
    setting = str(facts["software"].get("cuda", ""))
    return setting if _pair(setting) else ""


def too_old(facts: Mapping[str, Any]) -> bool:
    """Whether the driver is too old for torch's CUDA. An unknown version is not too old."""
    need, has = _pair(wanted(facts)), _has(facts)
    if not need or not has:
        return False
    return has[0] < need[0] if need[0] >= MINOR_COMPATIBLE else has < need


def least_driver(facts: Mapping[str, Any]) -> str:
    """The oldest driver for the image's CUDA, in words."""
    need = _pair(wanted(facts))
    return LEAST_DRIVER.get(need[0] if need else 0, f"for CUDA {wanted(facts)}")


def evidence(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The CUDA that the host's driver supports, as evidence; empty if that is unknown."""
    has = _has(facts)
    return (f"the driver supports CUDA {has[0]}.{has[1]}",) if has else ()


def arch(host: str, facts: Mapping[str, Any], capabilities: Sequence[str]) -> Iterator[Finding]:
    """A finding if the image's CUDA has no code for a GPU. Builds that are not PyTorch's may have translatable code."""
    cuda = _pair(wanted(facts))
    odd = sorted({text for text in capabilities if cuda and (entry := _pair(text)) and not _knows(cuda, entry)})
    if odd:
        official = "+cu" in facts["software"].get("torch", "")
        yield find(
            "gpu-arch",
            host,
            f"torch with CUDA {wanted(facts)} has no code for GPUs of compute capability {', '.join(odd)}",
            level=FAULT if official else WARNING,
        )


def _knows(cuda: tuple[int, int], capability: tuple[int, int]) -> bool:
    if cuda >= DROPPED[0] and capability < DROPPED[1]:
        return False
    return all(cuda >= need for since, need in NEEDS if capability >= since)


def _has(facts: Mapping[str, Any]) -> tuple[int, int] | None:
    """The CUDA version that a driver supports: 12040 means 12.4."""
    version = (facts.get("cuda") or {}).get("version") or 0
    return (version // 1000, version % 1000 // 10) if version else None


def _pair(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    minor = minor.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
