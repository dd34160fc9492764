"""Golden outputs: what a user sees, recorded in `tests/golden/outputs/`, and compared line by line.

`GOLDEN=write python -m pytest tests/golden` records them again. Do that in a separate commit, whose message says what a
user gains.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

OUTPUTS = Path(__file__).with_name("outputs")
_SHOWN = 60
# Words in recorded logs that no file of this checkout may contain (tests/unit/test_architecture.py).
_UNWANTED = (("/".join(("", "work", "")), "/folder/"), (".".join(("pypi", "org")), "index.example"))


def hold(name: str, text: str) -> None:
    """Compare a text with the recorded output of this name. Raises AssertionError with the lines that differ."""
    file, text = OUTPUTS / name, text.rstrip("\n") + "\n"
    for word, instead in _UNWANTED:
        text = text.replace(word, instead)
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
        return
    was = file.read_text() if file.exists() else ""
    changed = list(difflib.unified_diff(was.splitlines(), text.splitlines(), "recorded", "now", lineterm="", n=1))
    more = [f"... and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
    assert not changed, "\n".join([f"{name} is not what was recorded:", *changed[:_SHOWN], *more])
