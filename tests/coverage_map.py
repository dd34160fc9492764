"""Print which folder of tests executes how much of which module.

    python -m tests.coverage_map unit ssh ...     runs these folders under coverage, then prints
    python -m tests.coverage_map                  prints what was measured before

coverage is installed in `.venv-coverage`, which also sees the packages of this environment; the measurements are stored
there, too.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
VENV = HOME / ".venv-coverage"
PYTHON, MEASURED, SETTINGS = VENV / "bin/python", VENV / "measured", VENV / "coveragerc"
COVERAGE = "coverage==7.10.7"
FOLDERS = ("unit", "hostile", "ssh", "lab", "dist", "image", "install", "cluster")
# A smaller share of a module is only code that any test happens to run.
LEAST_PERCENT = 20
RC = """\
[run]
parallel = true
sigterm = true
patch = _exit
include = */deploy/*, */trainer/*, */muster/*
omit = */site-packages/*
disable_warnings = no-data-collected, module-not-measured
[paths]
deploy =
    {home}/deploy
    */deploy
trainer =
    {home}/trainer
    */trainer
muster =
    {home}/muster
    */muster
"""
HEAD = """\
# Which tests hold which module

Made by `python -m tests.coverage_map {folders}`; do not edit by hand. A number is the percentage of the statements in a
module's functions that a folder of tests executes, in its own processes and in those that it starts on this machine.
What runs in containers is not seen. Executed is not checked: the test that states what `deploy/hosts/start/plan.py`
does is `tests/unit/hosts/test_plan.py`.
"""


def prepare() -> None:
    """Make the environment: coverage in addition to this one's packages, active in each Python started from it."""
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", COVERAGE], check=True)
    here = [entry for entry in sys.path if entry.endswith("site-packages")]
    packages = next((VENV / "lib").glob("python3*")) / "site-packages"
    (packages / "measured.pth").write_text("\n".join([*here, "import coverage; coverage.process_startup()", ""]))
    fab = Path(sys.executable).with_name("fab").read_text().splitlines()
    (VENV / "bin/fab").write_text("\n".join([f"#!{PYTHON}", *fab[1:], ""]))
    (VENV / "bin/fab").chmod(0o755)
    SETTINGS.write_text(RC.format(home=HOME))


def measure(folder: str) -> None:
    """Run a folder of tests, and store which lines were executed."""
    data = MEASURED / folder / "data"
    data.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "COVERAGE_PROCESS_START": str(SETTINGS), "COVERAGE_FILE": str(data)}
    # Only one process: with several, a worker that crashed under coverage left pytest-xdist waiting for ever.
    subprocess.run([PYTHON, "-m", "pytest", "-q", "-n", "0", f"tests/{folder}"], cwd=HOME, env=environment, check=False)
    tool = [PYTHON, "-m", "coverage"]
    settings = [f"--rcfile={SETTINGS}", f"--data-file={data}"]
    subprocess.run([*tool, "combine", "--quiet", *settings], cwd=HOME, check=True)
    subprocess.run([*tool, "json", "--quiet", *settings, "-o", data.with_name("lines.json")], cwd=HOME, check=True)


def statements(path: Path) -> set[int]:
    """The lines of the statements in a module's functions, without docstrings."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    bodies = {node for function in functions for stmt in function.body for node in ast.walk(stmt)}
    words = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    own = (node for node in bodies if isinstance(node, ast.stmt) and not isinstance(node, words))
    return {node.lineno for node in own if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))}


def shares() -> dict[str, dict[str, int]]:
    """For each module and folder of tests: the percentage of the module's statements that the folder executes."""
    by_module: dict[str, dict[str, int]] = {}
    runs = {name: MEASURED / name / "lines.json" for name in FOLDERS}
    files = {name: json.loads(path.read_text())["files"] for name, path in runs.items() if path.exists()}
    for path in sorted(path for half in ("deploy", "trainer", "muster") for path in (HOME / half).rglob("*.py")):
        module, lines = str(path.relative_to(HOME)), statements(path)
        if lines:
            executed = {name: lines & set(own.get(module, {}).get("executed_lines", ())) for name, own in files.items()}
            by_module[module] = {name: round(100 * len(some) / len(lines)) for name, some in executed.items()}
    return by_module


def page(by_module: dict[str, dict[str, int]]) -> str:
    """The page as text."""
    measured = list(next(iter(by_module.values())))
    missing = [name for name in FOLDERS if name not in measured]
    without = [module for module, by in by_module.items() if module.startswith("deploy/") and not by["unit"]]
    lines = [HEAD.format(folders=" ".join(measured))]
    lines += [f"Not measured here: {', '.join(missing)}.\n"] if missing else []
    lines += ["## Modules of deploy/ of which no unit test executes a function", ""]
    lines += [f"- `{module}`: {_others(by_module[module])}" for module in without] or ["None."]
    lines += ["", "## All modules", "", "| module | unit | other folders |", "|---|---|---|"]
    lines += [f"| `{module}` | {by['unit'] or '-'} | {_others(by)} |" for module, by in by_module.items()]
    return "\n".join([*lines, ""])


def _others(by: dict[str, int]) -> str:
    others = sorted(((share, name) for name, share in by.items() if name != "unit"), reverse=True)
    return ", ".join(f"{name} {share}" for share, name in others if share >= LEAST_PERCENT) or "-"


def main() -> None:
    """Measure the folders that were asked for, and print the page."""
    if unknown := set(sys.argv[1:]) - set(FOLDERS):
        sys.exit(f"error: {', '.join(unknown)}: no such folder\nhint: one of {', '.join(FOLDERS)}")
    prepare()
    for folder in sys.argv[1:]:
        measure(folder)
    print(page(shares()), end="")


if __name__ == "__main__":
    main()
