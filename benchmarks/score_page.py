"""Preflight's score, lab/scores/preflight-score.md: each preflight benchmark writes its own section of the page."""

from __future__ import annotations

from benchmarks.venv import HOME

PAGE = HOME / "lab/scores/preflight-score.md"


def write(part: str, text: str) -> None:
    """Write the text into the section of this name; a new section is added at the end of the page."""
    begin, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->\n"
    page = PAGE.read_text()
    page = page if begin in page else f"{page}\n{begin}{end}"
    head, _, rest = page.partition(begin)
    PAGE.write_text(f"{head}{begin}{text}{end}{rest.partition(end)[2]}")
