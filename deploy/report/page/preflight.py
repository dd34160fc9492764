"""The page of a preflight: one HTML file that needs no network and no JavaScript. Pure.

Flow: (Answers, Verdict) -> head, findings, tables -> the file that --html names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ...preflight.answers import Answers
from ...preflight.findings import DOCS, FAULT, UNKNOWN, WARNING, Finding, Verdict, listed
from ..preflight_text import MARKS
from . import units as words
from .html import Html, document, join, tag
from .preflight_tables import heat, machines, reach

HERE = Path(__file__).parent
# `on gpu-b: sudo ufw allow ...   (or the same elsewhere)`; several hosts with a command each stay one text.
ONE_COMMAND = re.compile(r"(on [^:]+): ((?:(?!; on ).)+?)(?: {3}\((.+)\))?")
CLASSES = {"ok": "ok", FAULT: "fault", WARNING: "warning", UNKNOWN: "unknown"}


def build(answers: Answers, verdict: Verdict) -> str:
    """The whole page."""
    body = [
        _head(answers, verdict),
        *(_finding(found, first=not number) for number, found in enumerate([*verdict.faults, *verdict.unknown])),
        _warnings(verdict.warnings),
        _section("Who reaches whom", reach(answers, bool(verdict.faults))),
        _section("How fast", heat(answers)),
        _section("The hosts", machines(answers)),
    ]
    style = "".join((HERE / name).read_text("utf-8") for name in ("page.css", "preflight.css"))
    return document(f"preflight of {listed(answers.hosts)}", body, style)


def _head(answers: Answers, verdict: Verdict) -> Html:
    cause = verdict.first
    word = "Ready" if not cause else "Not ready" if verdict.faults else "Could not tell"
    mark = MARKS["ok" if not cause else cause.level]
    state = "done" if not cause else "failed" if verdict.faults else "unknown"
    told = cause.text if cause else "The nodes will find each other" + (", with warnings." if verdict.warnings else ".")
    endpoint = f"[{answers.plan.endpoint}]" if ":" in answers.plan.endpoint else answers.plan.endpoint
    facts = {
        "Meets at": f"{endpoint or answers.want.endpoint}:{answers.want.port} ({answers.meeting})",
        "Backend": answers.want.backend,
        "Looked": verdict.where,
        "Took": words.duration(verdict.seconds),
    }
    return tag(
        "header",
        tag("p", "Muster preflight", class_="eyebrow"),
        tag("h1", listed(answers.hosts)),
        tag("p", tag("span", mark, aria_hidden="true"), f" {word}", class_=f"verdict {state}"),
        tag("p", told, class_="trouble" if cause else "finding"),
        tag("ul", *map(_group, verdict.groups.items()), class_="groups"),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()), class_="facts"),
    )


def _group(row: tuple[str, str]) -> Html:
    """One group of checks and how it came out; what was not asked is no check."""
    name, level = row
    if not level:
        return Html("")
    return tag("li", tag("b", MARKS[level], title=level), f" {name}", class_=CLASSES[level])


def _finding(found: Finding, first: bool) -> Html:
    """Why it is said and what to do; the head has said the first one."""
    unsure = tag("b", "Could not tell: ") if found.level == UNKNOWN else Html("")
    text = Html("") if first else tag("p", unsure, found.text, class_="finding")
    rows = {"Evidence": found.evidence, "Would show as": (found.symptom,), "So also": found.follows}
    said = (tag("div", tag("dt", name), tag("dd", _lines(value))) for name, value in rows.items() if any(value))
    content = join([text, tag("dl", *said, class_="facts"), *_fix(found)])
    return _section("Why, and the fix" if first else "Also", content, "cause")


def _fix(found: Finding) -> Iterable[Html]:
    """The fix as text to copy, the command apart from where to type it; and where more is told."""
    if found.fix:
        known = ONE_COMMAND.fullmatch(found.fix)
        where, command, note = known.groups("") if known else ("", found.fix, "")
        yield tag("p", tag("span", f"Fix {where}"), tag("code", command), class_="command")
        if note:
            yield tag("p", tag("span"), tag("span", note), class_="command")
    yield tag("p", tag("span", "More"), tag("code", f"{DOCS}#{found.cause}"), class_="command")


def _lines(values: Iterable[str]) -> Html:
    return join([tag("p", value) for value in values if value])


def _warnings(found: list[Finding]) -> Html:
    rows = [tag("li", one.text, *([tag("code", one.fix)] if one.fix else [])) for one in found]
    return _section("Warnings", tag("ul", *rows, class_="warnings") if rows else Html(""))


def _section(title: str, content: Html, kind: str | None = None) -> Html:
    """A section, or nothing where there is nothing to tell."""
    return tag("section", tag("h2", title), content, class_=kind) if content else Html("")
