"""Preflight's score, lab/scores/preflight-score.md: each benchmark of preflight writes its own part of the page."""

from __future__ import annotations

from benchmarks.venv import HOME

PAGE = HOME / "lab/scores/preflight-score.md"


def write(part: str, text: str) -> None:
    """Put the text into the part of this name, which is at the page's end where it has none yet."""
    begin, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->\n"
    page = PAGE.read_text()
    page = page if begin in page else f"{page}\n{begin}{end}"
    head, _, rest = page.partition(begin)
    PAGE.write_text(f"{head}{begin}{text}{end}{rest.partition(end)[2]}")
