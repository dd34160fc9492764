"""Answer requests to the board that have passed its door (server.py): pages, and JSON for them.

    /                    the list of runs            /runs.json       its rows
    /compare/?run=       two to eight runs           /run/ID/         the page of a run, like report.html
    /run/ID/FILE         the end of one of its files, as plain text

A run's page is made again when its files have changed, but not so often that it takes more than MOST_SHARE of a core.
Browsers send the mark of the answer that they have, and get an empty answer while it is current.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...core.errors import UsageError
from ...core.printable import console_line, visible_values
from ...core.text import amount
from ...run.files import own_files, record, recorded_ends, standing
from ...run.files.standing import Signature, Standing, whole_signature
from .. import compare
from ..page import render, run
from ..page.data import MOST_READ, RunReader
from .runs import Live, RemoteRuns, Runs, newest_first

# The share of a core that a live page may take, and the bytes of a run's lines that it reads; the bytes that are shown
# of a file, and, each second, of a log; how many pages are kept.
MOST_SHARE, MOST_LIVE, MOST_FILE, MOST_LOOK, MOST_PAGES = 0.012, MOST_READ // 4, 1 << 20, 256 << 10, 4
_EVERY_S, _LIST_EVERY_S, _LARGE = 0.8, 0.5, 32 << 20
_JSON, _HTML, _TEXT = (f"{kind}; charset=utf-8" for kind in ("application/json", "text/html", "text/plain"))
_FOLDERS = frozenset(("logs", "ranks", "telemetry", "scalars"))
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.(?:log|jsonl?|diff)")


@dataclass(frozen=True)
class Reply:
    """A status, a body and its content type; `policy`: what the page may do (empty: nothing)."""

    code: int
    body: bytes = b""
    kind: str = _TEXT
    policy: str = ""

    @cached_property
    def mark(self) -> str:
        """A digest that distinguishes this body from others."""
        return hashlib.sha256(self.body).hexdigest()[:16]


_SAME = Reply(204)


@dataclass(frozen=True)
class _Page:
    seen: Signature
    now: Standing
    answer: Reply
    next_at: float


class Board:
    """The answers for one folder of runs. Only one request at a time lists the folder, and only one reads runs."""

    def __init__(self, folder: Path, elsewhere: RemoteRuns | None = None, live: Live = tuple) -> None:
        self._elsewhere, self._live = elsewhere, live
        self.runs, self._listing, self._reading = Runs(folder, live), threading.Lock(), threading.Lock()
        self._pages: dict[str, _Page] = {}
        # Only the reader of the run whose page was made last is kept: readers of several large runs need much memory.
        self._newest: RunReader | None = None
        self._list, self._list_at = Reply(200), 0.0

    def prepare(self) -> None:
        """Read the runs and the templates while the browser opens."""
        render.environment().get_template("run.html")
        while self.answer(["runs.json"], {}, time.time()) and self.runs.unread:
            pass

    def answer(self, path: Sequence[str], asked: Mapping[str, list[str]], now: float) -> Reply | None:
        """Answer a request for this path (without the token); None if there is no such page."""
        if self._elsewhere:
            self._elsewhere.looked_at = time.monotonic()
        reply = self._reply(path, asked, now)
        return _SAME if reply and asked.get("have") == [reply.mark] else reply

    def _reply(self, path: Sequence[str], asked: Mapping[str, list[str]], now: float) -> Reply | None:
        match [*path]:
            case []:
                return page_of_list()
            case ["runs.json"]:
                with self._listing:
                    return self._rows(now)
            case ["compare"]:
                with self._reading:
                    return self._comparison(asked.get("run", []))
            case ["run", name] if run_dir := self.runs.find(name):
                with self._reading:
                    return self._page(run_dir)
            case ["run", name, *rest] if run_dir := self.runs.find(name):
                return _file(run_dir, rest, look="look" in asked)
        return None

    def _rows(self, now: float) -> Reply:
        if self.runs.unread or abs(now - self._list_at) >= _LIST_EVERY_S:
            rows, faults = self.runs.rows(now), list[str]()
            if self._elsewhere and not self.runs.unread:
                here = {row["id"] for row in rows}
                rows = newest_first([*rows, *(row for row in self._elsewhere.rows() if row["id"] not in here)])
                faults = self._elsewhere.faults
            about = {"folder": str(self.runs.folder), "rows": rows, "unread": self.runs.unread, "faults": faults}
            body = json.dumps(visible_values(about)).encode()
            self._list, self._list_at = Reply(200, body, _JSON), now
        return self._list

    def _comparison(self, names: Sequence[str]) -> Reply | None:
        names = list(dict.fromkeys(names))
        known = [folder for name in names if (folder := self.runs.find(name))]
        with suppress(UsageError):
            compare.require_number(names)
            if len(known) == len(names):
                return _html(compare.page(compare.compare(known, MOST_LIVE)))
        return None

    def _page(self, run_dir: Path) -> Reply:
        """The page of a run. The more it costs to make, the older it may be."""
        known, at = self._pages.get(run_dir.name), time.monotonic()
        if not known or at >= known.next_at:
            seen = whole_signature(run_dir)
            what = standing.of(run_dir, recorded_ends.end_of(run_dir).get("verdict", ""), self._live)
            if not known or (seen, what) != (known.seen, known.now):
                # For a very large run, an incomplete page comes immediately, and the complete one a second later.
                quick = not known and sum(size for _, size in seen) > _LARGE
                if not self._newest or self._newest.folder != run_dir or self._newest.quick:
                    self._newest = RunReader(run_dir, MOST_LIVE // 4 if quick else MOST_LIVE, quick)
                known = _made(self._newest, () if quick else seen, what)
                others = [page for page in self._pages.items() if page[0] != run_dir.name]
                self._pages = dict([*others, (run_dir.name, known)][-MOST_PAGES:])
        return known.answer


def page_of_list() -> Reply:
    """The page with the list of runs, which browsers fill from runs.json."""
    scripts = ("follow.js", "board.js")
    return _html(render.page("board.html", "Runs", scripts, "board.css"), scripts)


def _html(markup: str, scripts: Sequence[str] = ()) -> Reply:
    """A reply with a page that has these scripts, and that no other page may frame."""
    return Reply(200, markup.encode(), _HTML, f"{render.policy_of(scripts)}; frame-ancestors 'none'")


def _made(reader: RunReader, seen: Signature, now: Standing) -> _Page:
    began, run_dir = time.thread_time(), reader.folder
    answer = _html(run.build(run_dir, record.own_fields(run_dir), reader, now), run.LIVE)
    rest = 0.0 if reader.quick else max(_EVERY_S, (time.thread_time() - began) / MOST_SHARE)
    return _Page(seen, now, answer, time.monotonic() + rest)


def _file(run_dir: Path, parts: Sequence[str], look: bool) -> Reply | None:
    """The end of a file in a run's folder or a subfolder; None if it is not one of the files that the board shows.

    `look`: for the page of the run, so that its lines are made visible as in the report.
    """
    if len(parts) > 2 or not _FOLDERS.issuperset(parts[:-1]) or not _FILE_NAME.fullmatch(parts[-1]):
        return None
    with suppress(OSError):
        end, before = own_files.read_end(run_dir, "/".join(parts), MOST_LOOK if look else MOST_FILE)
        if look:
            end = "\n".join(map(console_line, end.decode(errors="replace").split("\n"))).encode()
        cut = f"[the first {amount(before)} are left out]\n".encode() if before else b""
        return Reply(200, cut + end)
    return None
