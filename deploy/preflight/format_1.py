"""Read recorded answers of format 1, which have some facts only in Muster's own sentences. Pure."""

from __future__ import annotations

import re
from typing import Any

from .request import Facts

_ENDED = re.compile(r"(?:`|the probe) ended with code (-?\d+): (.*)", re.DOTALL)
# A sentence -> the kind of SSH fault that had it.
_KINDS = {"sent nothing for": "slow", "accepts none of your keys": "key-rejected", " lacks the library ": "no-library"}


def of_format_1(value: Facts) -> dict[str, Any]:
    """Return the same answers in format 2."""
    return {
        **value,
        "faults": {host: _fault(*fault) for host, fault in value.get("faults", {}).items()},
        "facts": {host: {**facts, "gpus": _gpus(facts.get("gpus"))} for host, facts in value["facts"].items()},
        "listens": {
            host: {**heard, "failed": {port: _failed(each) for port, each in heard.get("failed", {}).items()}}
            for host, heard in value.get("listens", {}).items()
        },
    }


def _fault(cause: str, words: str) -> list[Any]:
    text, _, hint = words.partition("\n")
    kind = next((kind for sentence, kind in _KINDS.items() if sentence in text), "")
    end = _ENDED.search(words)
    return [cause, text, hint, kind, end and (int(end[1]), end[2].strip())]


def _gpus(seen: Any) -> Any:
    return {**seen, "error": "", "absent": True} if seen and seen.get("error") == "nvidia-smi: not found" else seen


def _failed(port: Facts) -> dict[str, Any]:
    return {**port, "error": "in-use" if port["error"] == "in use" else port["error"]}
