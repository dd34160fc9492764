"""No program makes decisions from its own messages: ends and findings carry a cause; messages are for people.

A program may search the output of other programs, which offer nothing else. Each text that it searches for is listed
here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
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
