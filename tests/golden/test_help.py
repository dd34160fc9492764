"""The help of each command: its options and what they mean, independent of the layout."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.held import hold

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# An option, its value, and its meaning; a deeper line continues the meaning.
_OPTION, _MORE = re.compile(r"^ {2}(-\S.*?)(?: {2,}(.*))?$"), re.compile(r"^ {4,}(\S.*)$")


def printed(*words):
    done = subprocess.run([FAB, *words], cwd=HOME, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def whole_help(name):
    """The complete help of a command: a long help first shows only the most needed options."""
    text = printed(name, "--help")
    return printed(name, "--help-all") if f"muster {name} --help-all" in text else text


def described(text):
    """The help in lines: its text, and one line for each option with all of its meaning."""
    lines = []
    for line in filter(str.strip, text.splitlines()):
        option, more = _OPTION.match(line), _MORE.match(line)
        if option:
            lines.append(f"{' '.join(option[1].split())}: {option[2] or ''}".rstrip())
        elif more and lines and lines[-1].startswith("-"):
            lines[-1] += f" {more[1]}"
        else:
            lines.append(" ".join(line.split()))
    return lines


def test_the_help_of_each_command_is_unchanged():
    listed = printed("--list")
    names = re.findall(r"^ {2,}([a-z][a-z-]*)(?: {2,}|$)", listed, re.MULTILINE)
    assert len(names) > 20
    with ThreadPoolExecutor(3) as pool:
        helps = dict(zip(names, pool.map(whole_help, names), strict=True))
    lines = []
    for name in sorted(names):
        lines += [f"== {name}", *described(helps[name])]
    hold("help.txt", "\n".join(lines))
