"""Fill a template from templates/ with values: Jinja2 escapes each value, and control characters become visible."""

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
    """A whole page in one file; its policy keeps browsers from loading or running anything else.

    `scripts` and `style` are files next to the template: scripts come before page.js, the style after page.css.
    """
    look = "".join(map(_read, filter(None, ("page.css", style))))
    about = {"title": title, "policy": policy_of(scripts), "style": look, "script": _code(scripts), "words": words}
    markup = environment().get_template(template).render(values, **about)
    # Plain ASCII is correct in any encoding, and a lone surrogate from a node then raises no error.
    return markup.encode("ascii", "xmlcharrefreplace").decode()


def policy_of(scripts: Sequence[str]) -> str:
    """The policy for a page with these scripts, which it allows by digest. A page with follow.js may ask the board."""
    proof = base64.b64encode(hashlib.sha256(_code(scripts).encode()).digest()).decode()
    board = "connect-src 'self'; " * ("follow.js" in scripts)
    allowed = f"style-src 'unsafe-inline'; script-src 'sha256-{proof}'; {board}"
    return f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'"


def _code(scripts: Sequence[str]) -> str:
    return "".join(map(_read, (*scripts, "page.js")))


@cache
def environment() -> Environment:
    """The templates. Jinja2 is imported here, so that commands that write no page do not wait for it."""
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
    """Make control characters in text visible, before it is escaped. A template's own markup stays as it is."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
