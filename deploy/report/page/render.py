"""Fill a template of templates/ with values: Jinja2 escapes each of them, and control characters become visible."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import text as words
from ...core.printable import visible

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def page(template: str, title: str, scripts: Sequence[str] = (), style: str = "", **values: Any) -> str:
    """A whole page in one file; no browser lets it load or run anything else.

    `scripts` and `style` are files beside the template: before page.js, behind page.css.
    """
    look = "".join(map(_read, filter(None, ("page.css", style))))
    about = {"title": title, "policy": policy_of(scripts), "style": look, "script": _code(scripts), "words": words}
    markup = environment().get_template(template).render(values, **about)
    # Plain ASCII is right in any encoding, and a lone surrogate from a node cannot stop the page.
    return markup.encode("ascii", "xmlcharrefreplace").decode()


def policy_of(scripts: Sequence[str]) -> str:
    """The policy of a page with these scripts, which are known by their digest. One that follows may ask the board."""
    proof = base64.b64encode(hashlib.sha256(_code(scripts).encode()).digest()).decode()
    board = "connect-src 'self'; " * ("follow.js" in scripts)
    allowed = f"style-src 'unsafe-inline'; script-src 'sha256-{proof}'; {board}"
    return f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'"


def _code(scripts: Sequence[str]) -> str:
    return "".join(map(_read, (*scripts, "page.js")))


@cache
def environment() -> Environment:
    """The templates. Commands that write no page do not wait for the import of Jinja2."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )


def _visible(value: object) -> object:
    """Text with visible control characters, before escaping. The markup of a template stays as it is."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
