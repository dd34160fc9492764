"""The pages that are made, and the function that makes each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from . import causes, commands, exit_codes, figures, names, options, python_api

HOME = Path(__file__).resolve().parents[2]
FOLDER = HOME / "docs/reference"
# In a checkout the program is called `fab`, too; the pages use one name.
_PROGRAM = re.compile(r"\bfab\b(?= [a-z-])")
_LINK = re.compile(r"\]\(([\w-]+\.md)((?:#[^)\s]+)?)\)")


@cache
def find_page(name: str) -> Path:
    """The page with this name in any folder: texts of the code name a page only by its name."""
    if any(page.name == name for page in MAKERS):
        return FOLDER / name
    return min((HOME / "docs").rglob(name), key=lambda page: len(page.parts))


def place_links(text: str) -> str:
    """Turn each link to a page's name into a link from docs/reference/, and `fab` into `muster`."""
    text = _PROGRAM.sub("muster", text)
    return _LINK.sub(lambda link: f"]({os.path.relpath(find_page(link[1]), FOLDER)}{link[2]})", text)


def _make(page: Callable[[], str]) -> Callable[[], str]:
    return lambda: place_links(page())


def _fill(name: str, source: str, table: Callable[[], str]) -> Callable[[], str]:
    return lambda: names.fill_in((FOLDER / name).read_text(), source, table())


MAKERS: Mapping[Path, Callable[[], str]] = {
    FOLDER / "causes.md": _make(causes.causes_page),
    FOLDER / "options.md": _make(options.options_page),
    FOLDER / "commands.md": _make(commands.commands_page),
    FOLDER / "exit-codes.md": _make(exit_codes.exit_codes_page),
    FOLDER / "python-api.md": _make(python_api.python_page),
    HOME / "docs/evidence/benchmarks.md": figures.figures_page,
    FOLDER / "cluster-file.md": _fill("cluster-file.md", "options", options.keys_table),
    FOLDER / "variables.md": _fill("variables.md", "variables", names.variables_table),
    FOLDER / "run-folder.md": _fill("run-folder.md", "events", names.events_table),
}
