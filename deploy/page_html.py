"""Markup that is safe by construction: the report's pages are put together from these two names.

Place in the flow: words from a node -> `tag` -> the page. A plain `str` is text and is escaped; `Html` stays as it is.
"""

from __future__ import annotations

import html

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
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    inside = "".join(child if isinstance(child, Html) else html.escape(child) for child in children)
    return Html(f"<{name}{written}>{inside}</{name}>")
