"""The scripts that run on the control machine use only what macOS has too: bash 3.2 and the BSD tools.

Nobody has tried them on macOS. These tests find constructs that are known not to work there; tests/mac imitates on
Linux what it can of macOS. images/debian-base.sh and rack/ need Linux anyway.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
SCRIPTS = ("Makefile", "images/build.sh", "images/packages.sh", "images/secrets.sh", "requirements/torch.sh")
NOT_THERE = {
    "bash 4": r"\b(mapfile|readarray|coproc)\b|\b(declare|local) -[A-Za-z]*[An]|\$\{\w+(,,|\^\^)|&>>|\|&|\bwait -n",
    "GNU sed": r"\bsed (-[a-z]*[ir]|--)",
    "GNU stat, date, readlink": r"\bstat (-c|--)|\bdate (-d|--|\+%N)|\breadlink -[ef]|\brealpath -",
    "GNU grep, xargs, sort": r"\bgrep (-[a-z]*P|--)|\bxargs (-[a-z]*r|--)|\bsort (-[a-z]*V|--)",
    "GNU head, cp, ln": r"\bhead -n -|\bcp (-[a-z]*a\b|--)|\bln --",
    "no such command": r"(^|[;|(&] *|then |do )(nproc|timeout|tac|setsid|flock|sha256sum|unshare|ip) ",
    "GNU find, base64, tar": r"\bfind .*(-printf|-regextype)|\bbase64 -w|\btar .*--(sort|owner|mtime)",
    "an empty array is unset in bash 3.2": r'(?<!\+)"\$\{\w+\[@\]\}"',
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("what", NOT_THERE)
def test_a_script_for_the_control_machine_uses_nothing_that_macos_lacks(name, what):
    lines = (HOME / name).read_text().splitlines()
    found = [line for line in lines if not line.lstrip().startswith("#") and re.search(NOT_THERE[what], line)]
    assert found == []


def test_the_patterns_find_constructs_that_only_gnu_tools_have():
    examples = (
        "mapfile -t x",
        "sed -i s/a/b/ f",
        "stat -c %s f",
        "xargs -r rm",
        "x=1; timeout 5 x",
        "find . -printf x",
        '"${a[@]}"',
    )
    assert [line for line in examples if not any(re.search(pattern, line) for pattern in NOT_THERE.values())] == []
