"""What Python has on Linux but not on macOS, by module, according to mypy's typeshed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import mypy

_STUBS = Path(mypy.__file__).with_name("typeshed") / "stdlib"


def by_module() -> dict[str, list[str]]:
    """The names that only Linux has, for each module with such names."""
    found = {}
    for stub in _STUBS.rglob("*.pyi"):
        if '"linux"' in (text := stub.read_text()) or '"darwin"' in text:
            body = ast.parse(text).body
            here, there = ({*_names(body, platform)} for platform in ("linux", "darwin"))
            module = ".".join(stub.relative_to(_STUBS).with_suffix("").parts).removesuffix(".__init__")
            found[module] = sorted(here - there)
    return {module: names for module, names in sorted(found.items()) if names}


def _names(body: Sequence[ast.stmt], platform: str) -> Iterator[str]:
    known = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info), "TYPE_CHECKING": True}
    for each in body:
        match each:
            case ast.If():
                holds = eval(compile(ast.Expression(each.test), "stub", "eval"), known)
                yield from _names(each.body if holds else each.orelse, platform)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in each.names)
