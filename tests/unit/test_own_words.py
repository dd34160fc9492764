"""No program makes decisions from its own messages: ends and findings carry a cause; messages are for people.

A program may search the output of other programs, which offer nothing else. Each text that it searches for is listed
here. A regular expression is compared with all messages of Muster's programs and scripts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.sources import nodes

HOME = Path(__file__).resolve().parents[2]
# Messages of ssh, Docker, git, uv, the kernel, Python, torch, NCCL, nvidia-smi and exceptions.
OTHERS = {
    "no such container", "OCI runtime", "no such file", "docker run --help", "not responding", "tdio forwarding",
    "Too many authentication failures", "Permission denied", "partial success", "Offering public key:", "Too many",
    "timed out", "Network is unreachable", "No route to host", "Connection refused", "read-only file system", "a file",
    "No module named", "Traceback (most recent call last)", "HTTP status", "does not satisfy python", "reset by peer",
    "NVLS multicast support is", "Last error:", "direct shared memory", "is not", "\nFatal Python error: ",
    "Fatal Python error: ", "from multiprocessing.", "Download complete", "[GPU is lost]", "[GPU requires reset]",
    "fatal: Could not read from remote repository", "Error response from daemon: ",
}  # fmt: skip
# The reader of recordings of an older format, which have some facts only in sentences.
OF_OLD = {"deploy/preflight/format_1.py"}
SEARCHES = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index", "removeprefix",
            "removesuffix", "count"}  # fmt: skip
_WORDS = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}")
# These quote Docker, torch and others: the bare engine answers as Docker does.
QUOTING = ("deploy/engine/bare/", "deploy/causes/", "deploy/explain/")
# Parts of regular expressions: words of others that our messages happen to have as well.
OTHERS_PARTS = {
    "no such file", "No such file", "file exists", "permission denied", "no space left on device", "no space left",
    "pthread_create failed", "error response from daemon", "fatal error: ", "bus error", "cuda.{0,40}out of memory",
    "broken pipe", "has no attribute", "not found", "unable to", "timed out", "shared memory",
}  # fmt: skip
# Our own messages, in code that is still to be rewritten: scripts on a host write them beside what Docker says
# (deploy/host/scripts/look.sh, python.sh). This list only gets shorter.
OURS = {
    "this docker is Podman's own command", "this docker prints lines of its own", "this engine is rootless",
    "docker: (?:command )?not found", "no python in this image", r"no answer within \d+ s",
}  # fmt: skip
_SENTENCE = re.compile(r"[A-Za-z-]+ [a-z-]|^ [a-z]+ $")


def texts(node: ast.AST) -> Iterator[str]:
    """The literal texts of an expression; in an f-string, {} stands for each part that is not literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for each in node.elts:
            yield from texts(each)


def searched(program: Iterable[ast.AST]) -> Iterator[str]:
    """The sentences that a program looks for in a text, or compares a text with."""
    for node in program:
        found = list[str]()
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
                found += texts(left) if isinstance(operator, ast.In | ast.NotIn | ast.Eq | ast.NotEq) else ()
                found += texts(right) if isinstance(operator, ast.Eq | ast.NotEq) else ()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            found += [text for argument in node.args for text in texts(argument)]
        yield from filter(_SENTENCE.search, found)


def _compiles(node: ast.AST) -> bool:
    """Whether it is a call with a regular expression: of the module re, or of a table of signs."""
    of = node.func if isinstance(node, ast.Call) else None
    return (isinstance(of, ast.Attribute) and getattr(of.value, "id", "") == "re") or getattr(of, "id", "") == "_sign"


def patterns(program: Iterable[ast.AST]) -> Iterator[str]:
    """The parts of a program's regular expressions that have words: what is between two bars."""
    for node in filter(_compiles, program):
        whole = [text for each in ast.walk(node) if isinstance(each, ast.Constant) for text in texts(each)]
        yield from (part for text in whole for part in text.split("|") if _WORDS.search(part))


def messages(path: Path) -> Iterator[str]:
    """The sentences that a file may write: without those that it searches for, and without quoted words of others."""
    if path.suffix == ".sh":
        written = (line for line in path.read_text().splitlines() if re.match(r"[^#]*\b(?:echo|printf)\b", line))
        yield from (re.sub(r"\$\w+|\$\{\w+\}", "7", line) for line in written)
        return
    other = set[int]()
    for node in nodes(path):
        of_search = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SEARCHES
        if of_search or _compiles(node) or isinstance(node, ast.Compare | ast.Expr) or _is_table(node):
            whole = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            other |= set() if whole else {id(each) for each in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            other |= {id(each) for each in node.values}
    for node in nodes(path):
        if id(node) not in other and isinstance(node, ast.Constant | ast.JoinedStr):
            yield from (
                re.sub(r"`[^`]*`", "", each).replace("{}", "7") for each in texts(node) if _SENTENCE.search(each)
            )


def _is_table(node: ast.AST) -> bool:
    """Whether it is a constant: a table of what others write, or a text that messages have elsewhere."""
    return isinstance(node, ast.Assign) and all(getattr(target, "id", "").isupper() for target in node.targets)


def matched(part: str, ours: Mapping[str, set[str]]) -> list[str]:
    """Which files write a sentence that this part of a regular expression matches."""
    try:
        sign = re.compile(part, re.IGNORECASE)
    except re.error:  # the bar was within brackets
        return []
    return [name for name, lines in ours.items() if any(sign.search(line) for line in lines if line != part)]


def test_no_regular_expression_matches_our_own_messages() -> None:
    files = [path for top in ("deploy", "trainer", "muster") for path in sorted((HOME / top).rglob("*.*"))]
    ours = {
        name: set(messages(path))
        for path in files
        if path.suffix in (".py", ".sh") and not (name := str(path.relative_to(HOME))).startswith(QUOTING)
    }
    seen = {}
    programs = {str(path.relative_to(HOME)): path for path in files if path.suffix == ".py"}
    for name, path in programs.items():
        if name not in OF_OLD and not name.startswith("deploy/explain/"):
            seen |= {part: matched(part, ours) for part in patterns(nodes(path)) if part not in OTHERS_PARTS}
    ours_left = {part: names for part, names in seen.items() if names}
    assert {part: names for part, names in ours_left.items() if part not in OURS} == {}, "say it in a field of its own"
    assert ours_left.keys() == OURS, "this list only gets shorter"


def test_the_guard_detects_a_regular_expression_that_matches_our_own_messages(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('raise Lost(f"node {number} did not come within {wait} s")\n')
    (tmp_path / "b.sh").write_text('echo "no answer within $seconds s"\n')
    ours = {path.name: set(messages(path)) for path in sorted(tmp_path.iterdir())}
    program = ast.parse(r're.search(r"[Tt]imed out|node (\d+) did not come", text); _sign(r"no answer within \d+ s")')
    found = {name for part in patterns(ast.walk(program)) for name in matched(part, ours)}
    assert found == {"a.py", "b.sh"}


def test_no_program_decides_from_its_own_messages() -> None:
    own = {}
    for top in ("deploy", "trainer", "muster"):
        for path in sorted((HOME / top).rglob("*.py")):
            if (name := str(path.relative_to(HOME))) not in OF_OLD:
                own[name] = set(searched(nodes(path))) - OTHERS
    assert not {name: sentences for name, sentences in own.items() if sentences}, "say it in a field of its own"


@pytest.mark.parametrize(
    "line",
    [
        'if "left early" in message: pass',
        'if message.startswith("it left early"): pass',
        'head = message.partition(" while ")[0]',
        'if words == "it was asked to stop": pass',
        'if f"{host} is lost" in text: pass',
        'if text.startswith(("one or", "other")): pass',
    ],
)
def test_the_guard_detects_a_program_that_reads_its_own_messages(line: str) -> None:
    assert list(searched(ast.walk(ast.parse(line))))


@pytest.mark.parametrize("line", ['"a" in words', 'text.startswith("--name")', 'text.split(" ")', '"a b" in ("a b",)'])
def test_the_guard_allows_names_and_separators(line: str) -> None:
    assert not [text for text in searched(ast.walk(ast.parse(line))) if text != "a b"]
