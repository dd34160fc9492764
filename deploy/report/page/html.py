"""Build markup that is safe by construction: every page is made with these two names.

Flow: text from a node -> `tag` -> the page. A plain `str` is text and is escaped; `Html` stays as it is.
"""

from __future__ import annotations

import base64
import hashlib
import html

from ...core.printable import visible

VOID = frozenset({"meta", "br", "link"})


class Html(str):
    """Text that is markup already, and is not escaped again."""

    __slots__ = ()


def join(parts: list[Html]) -> Html:
    """Put pieces of markup one after the other."""
    return Html("".join(parts))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """One element: `tag("p", "a < b", class_="note")` is `<p class="note">a &lt; b</p>`.

    Attribute names drop a trailing underscore and turn the others into dashes; an attribute that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(visible(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    inside = "".join(child if isinstance(child, Html) else html.escape(visible(child)) for child in children)
    return Html(f"<{name}{written}>{inside}</{name}>")


def document(title: str, body: list[Html], style: str, script: str = "") -> str:
    """A whole page that needs nothing beside itself; no browser lets it load or run anything else."""
    proof = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = "style-src 'unsafe-inline'" + (f"; script-src 'sha256-{proof}'" if script else "")
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · Muster"),
        tag("style", Html(style)),
    )
    main = tag("body", tag("main", *body), *([tag("script", Html(script))] if script else []))
    page = f"<!doctype html>\n{tag('html', head, main, lang='en')}\n"
    # Plain ASCII: right whatever encoding the file is written in, and half a surrogate pair from a node cannot stop it.
    return page.encode("ascii", "xmlcharrefreplace").decode()
