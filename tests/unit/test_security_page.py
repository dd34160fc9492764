"""Each line of docs/explanation/security.md has a test that holds it, and each test so marked has a line."""

import ast
import re
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.report.console import Console
from tests.sources import statements

HOME = Path(__file__).resolve().parents[2]
PAGE = HOME / "docs/explanation/security.md"


def lines():
    """The test files that the page names in each row, by the row's name."""
    rows = re.findall(r"^\| .+ \| `([a-z-]+)` (\[.+\)) \|$", PAGE.read_text(), re.MULTILINE)
    assert len({name for name, _ in rows}) == len(rows)
    return {name: set(re.findall(r"\(\.\./\.\./(tests/[\w/]+\.py)\)", links)) for name, links in rows}


def held():
    """The names in the `holds` marks of tests, with the files of the tests that have them."""
    tests = {}
    for path in sorted((HOME / "tests").rglob("test_*.py")):
        for test in statements(path) if "pytest.mark.holds" in path.read_text() else ():
            for mark in getattr(test, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.holds":
                    tests.setdefault(ast.literal_eval(mark.args[0]), set()).add(str(path.relative_to(HOME)))
    return tests


def test_every_line_is_held_by_a_test_and_every_mark_has_a_line():
    assert len(lines()) > 15
    holders = held()
    assert set(lines()) == set(holders)
    assert not {name: files - holders[name] for name, files in lines().items() if not files <= holders[name]}


def test_no_table_row_is_without_a_name():
    _, *promises = PAGE.read_text().split("\n## ")
    rows = [row for part in promises for row in part.splitlines() if row.startswith("| ")]
    assert len([row for row in rows if row != "| | held by |"]) == len(lines())


@pytest.mark.holds("nobody-else-called")
def test_the_control_side_imports_no_http_client():
    """Muster connects only through the user's own `ssh`.

    It speaks to engines over connections that exist already: a local socket, or a program. Two modules are exceptions:
    sdists.py asks the user's own package index for a file, by its hash; registry.py asks a registry where the user has
    logged in for a token.
    """
    speakers = {
        "requests",
        "urllib",
        "urllib3",
        "http",
        "httpx",
        "aiohttp",
        "smtplib",
        "ftplib",
        "webbrowser",
        "docker",
    }
    files = sorted((HOME / "deploy").rglob("*.py"))
    assert len(files) > 50
    for path in files:
        for node in statements(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            known = {"http"} if path.parent.name == "engine" else set()
            known = {"http", "urllib"} if path.name in ("registry.py", "sdists.py") else known
            # The board listens and opens a browser; it connects to nobody.
            known = {"http", "webbrowser"} if path.parent.name == "board" and "http.client" not in names else known
            spoken = {name.split(".")[0] for name in names if name != "urllib.parse"}
            assert not spoken & speakers - known, path
    engine = "".join(path.read_text() for path in (HOME / "deploy/engine").glob("*.py"))
    assert not re.search(r"AF_INET|create_connection|HTTPS?Connection\(\"(?!engine)", engine)
    assert "auto_open = 0" in engine


@pytest.mark.holds("text-is-text")
def test_markup_in_a_hosts_words_is_not_interpreted(capsys):
    Console().error(DeployError("gpu-a: [bold red]no[/bold red] such file [link=x]y[/link]"))
    assert "[bold red]no[/bold red] such file [link=x]y[/link]" in capsys.readouterr().err
