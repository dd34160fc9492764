"""Hold the architecture: import order of packages, one importer per library, sizes, names. See design.md."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.sources import nodes, parsed, statements

HOME = Path(__file__).resolve().parents[2]
# A package imports only packages listed before it. The backends `local`, `hosts` and `slurm` never import each other.
DEPLOY = [
    "core",
    "causes",
    "explain",
    "job",
    "door",
    "engine",
    "run",
    "host",
    "preflight",
    "send",
    "report",
    "local",
    "hosts",
    "slurm",
    "commands",
    "api",
    "fabric",
]
# Every package of the trainer may import the modules directly in trainer/; these modules and `node` start without
# torch.
TRAINER = ["node", "train"]

# For each library with effects outside the program: the modules that may import it.
DOORS = {
    "rich": {"deploy/report/console", "deploy/report/live_view"},
    "click": {"deploy/commands/*"},
    "fabric": {"deploy/commands/fab", "deploy/fabric", "muster/fabric"},
    "invoke": {"deploy/commands/fab", "deploy/fabric"},
    "psutil": {"deploy/local/processes"},
    "pysyncobj": {"trainer/node/membership/register"},
    "torch": {
        "trainer/node/launch/*",
        "muster/checkpoint/*",
        "muster/data",
        "muster/exchange",
        "muster/agreement",
        "muster/ddp",
        "muster/training",
        "trainer/train/*",
        "trainer/recipes/*",
        "trainer/recipe",
        "trainer/verdict",
        "trainer/node/probe/rehearsal*",
    },
}
# Names that do not say what a thing is.
UNTELLING = {"said", "told", "found", "one", "kept", "there"}
# The table may be long: readers look up a row and never read it from end to end.
THE_TABLE = "deploy/job/options.py"
MOST_LINES, MOST_MEDIAN_LINES, MOST_FUNCTION_LINES = 450, 160, 70
HAS_DOCSTRING = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Files of a user or of a library that our comments and docstrings mention.
OF_OTHERS = {
    *("train.py", "setup.py", "torch.py", "random.py", "utils.py", "version.py", "muster.py", "torch/version.py"),
    *("c10d_rendezvous_backend.py", "dynamic_rendezvous.py", "lightning/fabric/cli.py", "pytorch_pkg_helpers/cuda.py"),
    *("lib/my_recipe.py", "data/text.py"),
}
# Split into pieces, because otherwise the search would find this file first.
UNWANTED = (
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


def python_files(*folders: str) -> list[Path]:
    """All Python files in these folders that are not empty."""
    return [path for folder in folders for path in sorted((HOME / folder).rglob("*.py")) if path.stat().st_size]


TOPS = ("muster", "deploy", "trainer")
HALVES, OTHERS = python_files(*TOPS), python_files("lab", "tests", "benchmarks", "examples", "gpu_check")


def name(path: Path) -> str:
    return str(path.relative_to(HOME))


@cache
def imported(path: Path) -> set[str]:
    """The full dotted names that a file imports anywhere in it; relative imports are resolved."""
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(path.relative_to(HOME).parent.parts)[: -node.level + 1 or None] if node.level else []
            stem = [*base, *(node.module or "").split(".")] if node.module else base
            names |= {".".join([*stem, alias.name]) for alias in node.names}
    return names


def packages_crossed(top: str, order: list[str]) -> list[str]:
    """Imports below `top` of a package that comes after the importer's own in `order`."""
    crossed = []
    for path in python_files(top):
        own = path.relative_to(HOME / top).parts[0].removesuffix(".py")
        for module in imported(path):
            package = (*module.split("."), "")[1]
            apart = own != package and {own, package} <= {"local", "hosts", "slurm"}
            known = module.startswith(f"{top}.") and {own, package} <= set(order)
            if known and (apart or order.index(package) > order.index(own)):
                crossed.append(f"{name(path)} imports {module}")
    return crossed


def test_a_package_of_deploy_imports_only_those_before_it() -> None:
    modules = {path.stem for path in (HOME / "deploy").glob("[!_]*.py")}
    packages = {path.parent.name for path in (HOME / "deploy").glob("*/__init__.py")}
    assert modules | packages == set(DEPLOY)
    assert not packages_crossed("deploy", DEPLOY)


def test_a_package_of_send_imports_only_those_before_it() -> None:
    order, crossed = ["road", "folder", "image", "packages"], []
    for path in python_files("deploy/send"):
        own = path.relative_to(HOME / "deploy/send").parts[0]
        for module in imported(path):
            package = module.removeprefix("deploy.send.").partition(".")[0]
            if {own, package} <= set(order) and order.index(package) > order.index(own):
                crossed.append(f"{name(path)} imports {module}")
    assert not crossed


def test_a_package_of_the_trainer_imports_only_those_before_it() -> None:
    assert not packages_crossed("trainer", TRAINER)


def test_programs_next_to_torchrun_start_without_torch() -> None:
    """Only the process of torchrun needs torch: other programs import only those modules of node/launch that do not."""
    with_torch = {
        name(path)
        for path in python_files("trainer/node/launch")
        if {"torch"} & {module.split(".")[0] for module in imported(path)}
    }
    assert with_torch
    for path in python_files("trainer/node"):
        reached = {f"{module.rpartition('.')[0].replace('.', '/')}.py" for module in imported(path)}
        reached |= {f"{module.replace('.', '/')}.py" for module in imported(path)}
        assert "launch" in path.parts or not reached & with_torch, name(path)


@pytest.mark.parametrize("top", TOPS)
def test_a_folder_has_few_modules(top: str) -> None:
    for folder in {path.parent for path in python_files(top)}:
        modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MOST_MODULES, f"{name(folder)}: {len(modules)} modules"


def test_the_code_inside_a_scripts_ranks_imports_nothing_else_of_muster() -> None:
    """The script's ranks load it by its path, under another name (trainer/node/rank/site/sitecustomize.py)."""
    imports = {module for path in python_files("trainer/node/rank") for module in imported(path)}
    assert {module for module in imports if module.startswith("trainer.node.rank.")}
    ours = {module for module in imports if module.split(".")[0] in TOPS}
    assert all(module.startswith("trainer.node.rank") for module in ours)


@pytest.mark.parametrize(
    ("top", "others"),
    [("deploy", {"trainer", "muster"}), ("trainer", {"deploy"}), ("muster", {"deploy", "trainer"})],
)
def test_the_halves_never_import_each_other_and_muster_neither(top: str, others: set[str]) -> None:
    crossing = {name(path) for path in python_files(top) for module in imported(path) if module.split(".")[0] in others}
    assert not crossing, f"{crossing} import {others}: the contract of the two halves is docs/develop/contract.md"


@pytest.mark.parametrize("top", TOPS)
def test_imports_inside_a_package_are_relative(top: str) -> None:
    """In a wheel, deploy/ and trainer/ lie below `muster`, so their dotted names differ."""
    own = re.compile(rf"^\s*(?:from|import) {top}\b", re.MULTILINE)
    assert not [name(path) for path in python_files(top) if own.search(path.read_text())]


def test_unit_tests_are_in_the_folder_of_the_package_they_test() -> None:
    folders = {path.parent.name for path in (HOME / "tests/unit").glob("*/test_*.py")}
    assert folders <= {*DEPLOY, "trainer", "muster"}, "what is about several of them lies in tests/unit itself"


def test_the_laboratory_imports_neither_tests_nor_benchmarks() -> None:
    imports = {name(path): {module.split(".")[0] for module in imported(path)} for path in python_files("lab")}
    assert imports
    assert not {path for path, tops in imports.items() if tops & {"tests", "benchmarks"}}


@pytest.mark.parametrize("library", DOORS)
def test_only_the_listed_modules_import_a_library(library: str) -> None:
    users = {
        name(path).removesuffix(".py")
        for path in HALVES
        if any(module.split(".")[0] == library for module in imported(path))
    }
    assert users
    strangers = {user for user in users if not any(fnmatch(user, door) for door in DOORS[library])}
    assert not strangers, f"{sorted(strangers)} import {library}; only {sorted(DOORS[library])} may"


@pytest.mark.parametrize("half", TOPS)
def test_files_are_small(half: str) -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in python_files(half)}
    assert {path for path, size in sizes.items() if size > MOST_LINES} <= {THE_TABLE}
    code = [size for path, size in sizes.items() if not path.endswith("__init__.py")]
    assert statistics.median(code) <= MOST_MEDIAN_LINES, "the files of a docstring alone do not make others small"


# Folders whose small modules were merged: a short module with only one user, in the same folder, belongs in that user.
# In commands/ each file is a group of the help, so this rule does not apply there.
MERGED = ("deploy/job", "deploy/report", "deploy/report/page", "deploy/commands")
MOST_MODULES, LEAST_LINES = 15, 60
# Class names in these folders that another module may use, too.
SHARED_NAMES = {"Cluster", "Job"}


def test_no_short_module_has_only_one_user_in_its_folder() -> None:
    parts = []
    for folder in MERGED:
        modules = [path for path in sorted((HOME / folder).glob("*.py")) if path.name != "__init__.py"]
        for path in modules if folder != "deploy/commands" else ():
            own = name(path).removesuffix(".py").replace("/", ".")
            users = [other for other in HALVES if any(f"{each}.".startswith(f"{own}.") for each in imported(other))]
            alone = len(users) == 1 and users[0].parent == path.parent
            parts += [name(path)] if alone and len(path.read_text().splitlines()) < LEAST_LINES else []
    assert not parts


def test_two_modules_never_define_the_same_public_class_name() -> None:
    homes: dict[str, set[str]] = {}
    for path in python_files("deploy"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                homes.setdefault(node.name, set()).add(name(path))
    shared = {own for own, paths in homes.items() if len(paths) > 1 and any(path.startswith(MERGED) for path in paths)}
    assert shared <= SHARED_NAMES


def may_be_long(path: Path) -> bool:
    """Whether any function may be too long: compares its first line with the next `def` indented no deeper."""
    text = path.read_text()
    starts = [(text.count("\n", 0, at.start()), len(at[1])) for at in re.finditer(r"^( *)(?:async )?def ", text, re.M)]
    starts.append((text.count("\n"), 0))
    ends = (next(line for line, depth in starts[n + 1 :] if depth <= start[1]) for n, start in enumerate(starts[:-1]))
    return any(end - line >= MOST_FUNCTION_LINES for (line, _), end in zip(starts, ends, strict=False))


def test_functions_are_short() -> None:
    long = {
        f"{name(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in [*HALVES, *filter(may_be_long, OTHERS)]
        for node in statements(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= MOST_FUNCTION_LINES
    }
    assert not long


def test_public_functions_and_classes_have_docstrings() -> None:
    silent = []
    for path in HALVES:
        tree = parsed(path)
        public = [
            node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"
        ]
        silent += [f"{name(path)}: {node.name}" for node in public if not ast.get_docstring(node)]
        silent += [name(path)] if not ast.get_docstring(tree) else []
    assert not silent


def test_the_first_docstring_line_of_each_file_is_a_whole_sentence() -> None:
    first = {name(path): (ast.get_docstring(parsed(path)) or "").split("\n")[0] for path in HALVES}
    assert not {where: line for where, line in first.items() if line[-1:] not in (".", "?")}


def bindings(path: Path) -> set[str]:
    """The names that a file gives to variables, attributes, arguments, functions, classes, imports and itself."""
    names: set[str | None] = set()
    for node in nodes(path):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.add(node.name)
        elif isinstance(node, ast.arg | ast.alias):
            names.add(node.arg if isinstance(node, ast.arg) else node.asname)
    return {*filter(None, names), path.stem}


def test_names_say_what_a_thing_is() -> None:
    bad = {name(path): {own for own in bindings(path) if own.strip("_").lower() in UNTELLING} for path in HALVES}
    assert not {path: names for path, names in bad.items() if names}


def test_the_design_page_mentions_only_files_that_exist() -> None:
    text = (HOME / "docs/develop/design.md").read_text()
    cited = re.findall(r"`((?:deploy|trainer|muster|tests|lab|docs|benchmarks)/[\w/.-]*)`", text)
    above, drawn = {0: ""}, []
    for indent, folder in re.findall(r"^( *)([a-z_]+/) ", text, re.MULTILINE):
        drawn.append(above[len(indent)] + folder)
        above[len(indent) + 2] = drawn[-1]
    assert len(cited) > 15
    assert len(drawn) > 25
    assert not [path for path in (*cited, *drawn) if not (HOME / path).exists()]
    named = re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)
    assert named
    assert not [path for path, symbol in named if not re.search(rf"\b{symbol}\b", (HOME / path).read_text())]


def test_comments_mention_only_modules_that_exist() -> None:
    files = [name(path) for path in (*HALVES, *OTHERS)]
    ends = {"/".join(file.split("/")[at:]) for file in files for at in range(file.count("/") + 1)}
    gone = []
    for path in HALVES:
        texts = [ast.get_docstring(node) or "" for node in statements(path) if isinstance(node, HAS_DOCSTRING)]
        texts += [ast.get_docstring(parsed(path)) or "", *re.findall(r"#.*", path.read_text())]
        named = {each for text in texts for each in re.findall(r"(?<![\w./-])(?:\w+/)*\w+\.py\b", text)}
        gone += [f"{name(path)}: {each}" for each in sorted(named - ends - OF_OTHERS)]
    assert not gone, "\n".join(gone)


def test_every_folder_of_tests_is_searched_for_tests(pytestconfig: pytest.Config) -> None:
    """pytest skips folders with certain names: `dist` was one, and nobody noticed that its tests did not run."""
    names = {part for path in (HOME / "tests").rglob("test_*.py") for part in path.parent.relative_to(HOME).parts}
    passed_over = pytestconfig.getini("norecursedirs")
    assert not [name for name in sorted(names) if any(fnmatch(name, pattern) for pattern in passed_over)]


def test_no_unwanted_words() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=HOME,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout: the list of our own files is git's")
    words = []
    for entry in filter(None, listed.stdout.decode().split("\0")):
        path = HOME / entry
        if not path.is_file() or path.suffix in {".gz", ".xz", ".png", ".whl"}:
            continue
        text = path.read_text(errors="replace")
        for pattern in UNWANTED:
            plain = re.sub(r"\(\?<!.*?\)|\\b|\\", "", pattern)
            # Most files contain none: searching for the plain word first takes a tenth of the time.
            places = re.finditer(pattern, text) if plain in text else ()
            words += [f"{entry}:{text.count(chr(10), 0, at.start()) + 1}: {at[0]}" for at in places]
    assert not words
