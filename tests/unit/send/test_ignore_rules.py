"""Rules in ignore files have the same meaning as in git and Docker, and take time bounded by their length."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from docker.utils.build import PatternMatcher

from deploy.core.errors import DeployError
from deploy.send.folder import ignore_rules, selection
from lab import waiting

NAMES = ["a", "b", "ab", "a.py", "b.txt", "x[1]", "c d", " e", "f ", "aab", "data", "deep", "\\q", "!n", "#h", "a]b"]
PARTS = [
    "a",
    "b",
    "*",
    "?",
    "**",
    "[ab]",
    "[!a]",
    "[^b-c]",
    "[[:alpha:]]",
    "\\a",
    "*.py",
    "*.txt",
    "data",
    "x[[]1]",
    "\\ ",
]
ENDS = ["", "", "/", " ", "/**"]


def paths(draw: random.Random) -> list[str]:
    return ["/".join(draw.choice(NAMES) for _ in range(draw.randint(1, 4))) for _ in range(40)]


def line(draw: random.Random) -> str:
    text = "/".join(draw.choice(PARTS) for _ in range(draw.randint(1, 3)))
    return draw.choice(["", "", "!", "/", "**/"]) + text + draw.choice(ENDS)


def ignored(rules: ignore_rules.Rules, path: str) -> bool:
    """Whether the path is ignored, itself or through a folder above it."""
    parts = path.split("/")
    for deep in range(1, len(parts) + 1):
        number = rules.decides("/".join(parts[:deep]), deep < len(parts))
        if number >= 0 and not rules.patterns[number].takes_back:
            return True
    return False


@pytest.mark.parametrize("seed", range(25))
def test_a_gitignore_means_what_git_means_by_it(tmp_path, seed):
    draw = random.Random(seed)
    names, text = paths(draw), "".join(f"{line(draw)}\n" for _ in range(draw.randint(1, 6)))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git/info/exclude").write_text(text)
    command = ["git", "-C", str(tmp_path), "check-ignore", "-z", "--stdin", "--no-index"]
    order = b"".join(os.fsencode(name) + b"\0" for name in names)
    answer = subprocess.run(command, input=order, capture_output=True, check=False).stdout
    rules = ignore_rules.of_git(text, "x")
    assert {name for name in names if ignored(rules, name)} == {
        os.fsdecode(name) for name in answer.split(b"\0") if name
    }, text


@pytest.mark.parametrize("seed", range(25))
def test_a_dockerignore_means_what_docker_means_by_it(tmp_path, seed):
    draw = random.Random(seed)
    for name in paths(draw):
        try:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        except OSError:
            continue  # a file exists where a folder would be needed
    plain = ["a", "b", "*", "*.py", "data", "deep", "?", "a*"]
    text = ["/".join(draw.choice(plain) for _ in range(draw.randint(1, 3))) for _ in range(3)]
    text += [
        f"!{draw.choice(['a', 'data', 'a.py', 'b'])}/{draw.choice(['b', 'a.py', 'deep'])}",
        f"**/{draw.choice(plain)}",
    ]
    draw.shuffle(text)
    assert set(selection.not_ignored(tmp_path, text)) == set(PatternMatcher(text).walk(str(tmp_path))), text


@pytest.mark.parametrize(
    "text", ["*a" * 120 + "b", "**/" * 60 + "x", "[a-z]*" * 40 + "0", "/".join(["**", "*a*"] * 30)]
)
@pytest.mark.parametrize(
    "read", [lambda text: ignore_rules.of_git(text, "x"), lambda text: ignore_rules.of_docker([text], "x")]
)
def test_no_rule_takes_long(text, read):
    with waiting.spending_little():
        rules = read(text)
        for path in ("a" * 250, "/".join(["a" * 30] * 60), "x/" * 1000 + "y"):
            rules.decides(path, False)


@pytest.mark.long
def test_an_absurd_number_of_rules_is_refused():
    with pytest.raises(DeployError, match="wildcards"):
        ignore_rules.of_git("*.x\n" * 3000, ".gitignore")
    assert ignore_rules.of_git("name\n" * 100_000, ".gitignore").decides("name", False) == 99_999
