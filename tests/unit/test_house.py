"""The house keeps its shape: layers, doors, sizes, words. docs/design.md holds the table this reads."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
DEPLOY, TRAINER = HOME / "deploy", HOME / "trainer"

# Which modules may import a library that opens a door to the outside.
DOORS = {
    "docker": {"deploy/engine*"},
    "rich": {"deploy/report"},
    "fabric": {"deploy/*tasks"},
    "invoke": {"deploy/*tasks", "deploy/cli"},
    "paramiko": {"deploy/session*"},
    "psutil": {"deploy/processes"},
    "torch": {"trainer/*"},
}
MOST_LINES, MOST_MEDIAN_LINES, MOST_FUNCTION_LINES = 450, 120, 70
# In pieces, or this file would be the first to be found.
UNWANTED = re.compile(
    "|".join(
        (
            r"\bTO" r"DO\b",
            r"\bFIX" r"ME\b",
            r"(?<![\w./])/wor" r"k/",
            r"/opt/py" r"pi",
            r"py" r"pi\.org",
            r"pythonhos" r"ted\.org",
            r"deb\.deb" r"ian\.org",
            r"npm" r"js\.org",
            r"download\.pyt" r"orch\.org",
        )
    )
)


def layer_rows() -> list[list[str]]:
    """Rows of the layer table, top first; each a list of module names or patterns."""
    table = (HOME / "docs/design.md").read_text().split("| row | modules |", 1)[1]
    rows = []
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        cell = re.sub(r"\(.*?\)", "", line.split("|")[2]).replace("fabfile.py", "")
        rows.append(re.findall(r"[a-z_]+\*?", cell.replace(" then ", " ")))
    return rows


def group(module: str) -> tuple[int, str]:
    """A module's row and its name in the table; parts of `page*` count as one."""
    for number, row in enumerate(layer_rows()):
        for pattern in row:
            if fnmatch(module, pattern):
                return number, pattern
    raise AssertionError(f"deploy/{module}: not in the layer table of docs/design.md")


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")


def imported(path: Path) -> set[str]:
    """Dotted names a file imports, wherever in it; `from deploy.engine.client import client as engine` counts as deploy.engine.client."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path.relative_to(HOME)}:{node.lineno}: relative import; write the whole name"
            whole = node.module in ("deploy", "trainer")
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if whole else {node.module}
    return names


def deploy_imports(path: Path) -> set[str]:
    """Which modules of deploy/ a file imports."""
    return {name.split(".")[1] for name in imported(path) if name.startswith("deploy.")}


def python_files() -> list[Path]:
    """All hand-written Python, tests included."""
    folders = ("deploy", "trainer", "tests", "benchmarks", "examples")
    return [*(path for folder in folders for path in sorted((HOME / folder).rglob("*.py"))), HOME / "fabfile.py"]


def name(path: Path) -> str:
    return str(path.relative_to(HOME))


def test_the_layer_table_is_read() -> None:
    rows = layer_rows()
    assert ["errors"] in rows
    assert rows[-1] == ["cli"]


@pytest.mark.parametrize("path", modules(DEPLOY), ids=lambda path: path.stem)
def test_a_deploy_module_imports_only_from_rows_above_its_own(path: Path) -> None:
    row, own = group(path.relative_to(DEPLOY).parts[0].removesuffix(".py"))
    below = [other for other in deploy_imports(path) if group(other)[1] != own and group(other)[0] >= row]
    assert not below, f"{name(path)} (row {row + 1}) imports {', '.join(sorted(below))}: see docs/design.md"


def test_report_reaches_only_the_pure_rows() -> None:
    doors = group("processes")[0]
    reached = deploy_imports(DEPLOY / "report.py")
    assert reached
    assert all(group(other)[0] < doors for other in reached), reached


@pytest.mark.parametrize(("half", "other"), [(DEPLOY, "trainer"), (TRAINER, "deploy")], ids=["deploy", "trainer"])
def test_the_halves_never_import_each_other(half: Path, other: str) -> None:
    files = modules(half)
    assert files
    crossing = [name(path) for path in files if any(found.split(".")[0] == other for found in imported(path))]
    assert not crossing, f"{crossing} import {other}/: their contract is docs/contract.md"


@pytest.mark.parametrize("library", DOORS)
def test_only_its_door_imports_a_library(library: str) -> None:
    users = {
        name(path).removesuffix(".py")
        for path in (*modules(DEPLOY), *modules(TRAINER), HOME / "fabfile.py")
        if any(found.split(".")[0] == library for found in imported(path))
    }
    strangers = {user for user in users if not any(fnmatch(user, door) for door in DOORS[library])}
    assert not strangers, f"{sorted(strangers)} import {library}; only {sorted(DOORS[library])} may"


def test_no_module_or_test_package_shadows_a_library() -> None:
    shadows = {"torch", "docker", "fabric", "rich", "invoke", "psutil"}
    assert not [name(path) for path in python_files() if path.stem in shadows]
    assert not list((HOME / "tests").rglob("__init__.py"))


def test_files_are_small() -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in python_files() if path.stat().st_size}
    assert len(sizes) > 20
    assert not {path: size for path, size in sizes.items() if size > MOST_LINES}
    assert statistics.median(sizes.values()) <= MOST_MEDIAN_LINES


@pytest.mark.parametrize("path", python_files(), ids=name)
def test_functions_are_short(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    long = {
        node.name: length for node in functions if (length := node.end_lineno - node.lineno + 1) > MOST_FUNCTION_LINES
    }
    assert not long, f"{name(path)}: {long}"


@pytest.mark.parametrize("path", [*modules(DEPLOY), *modules(TRAINER)], ids=name)
def test_what_is_public_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{name(path)}: no docstring saying its place in the flow"
    public = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]
    methods = [
        method
        for node in public
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and method.name[0] != "_"
        and method.name != "forward"  # torch's own name for it
    ]
    silent = [node.name for node in (*public, *methods) if not ast.get_docstring(node)]
    assert not silent, f"{name(path)}: no docstring on {', '.join(silent)}"


def test_no_unwanted_words() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=HOME,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout: the list of our own files is git's")
    found = []
    for entry in filter(None, listed.stdout.decode().split("\0")):
        path = HOME / entry
        if not path.is_file() or path.suffix in {".gz", ".png", ".whl"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if match := UNWANTED.search(line):
                found.append(f"{entry}:{number}: {match[0]}")
    assert not found
