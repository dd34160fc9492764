"""The recording in the README: what commands printed, and when, as a moving picture. Nothing in it is typed by hand.

python docs/pictures/record.py FOLDER 'COMMAND' 'COMMAND' ...  ->  docs/pictures/recording.svg

The one in the README: docs/pictures/recorded.py as train.py, in which rank 1 kills itself once, on two hosts of a rack
(gpu-a and gpu-b are other names for them in the file that MUSTER_SSH_CONFIG names). Before it, on gpu-a:
sudo iptables -I INPUT -p tcp --syn --dport 32768:60999 -j DROP. The commands are those of the picture.

Runs the commands in the folder, one after the other. A wait of more than a second is shown as a second.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

COLUMNS, MOST_ROWS, LONGEST_WAIT_S, LETTER, ROW = 108, 40, 1.0, 7.8, 19
STYLE = """
svg { background: #17181c; border-radius: 8px }
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d6d8de; white-space: pre }
.typed { fill: #7fd6a4 } .bad { fill: #f2a36b }
@media (prefers-reduced-motion: no-preference) { text { opacity: 0; animation: show .01s forwards } }
@keyframes show { to { opacity: 1 } }
"""


def run_all(folder: Path, commands: list[str]) -> Iterator[tuple[float, str, str]]:
    """Each line with its time on the picture, and its kind. Raises RuntimeError for a command that fails."""
    shown, last = 0.0, time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": str(COLUMNS)}
    for command in commands:
        shown, last = shown + LONGEST_WAIT_S, time.monotonic()
        yield shown, "typed", f"$ {command}"
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        for line in process.stdout or ():
            shown, last = shown + min(time.monotonic() - last, LONGEST_WAIT_S), time.monotonic()
            yield shown, "bad" if "killed" in line or "cause" in line else "", line.rstrip()
        if process.wait():
            raise RuntimeError(f"{command}: ended with {process.returncode}")


def wrap(line: str) -> list[str]:
    """The line in rows of the picture."""
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""]


def draw(lines: list[tuple[float, str, str]]) -> str:
    """The moving picture. It moves once, and not at all for who wants no motion."""
    rows = [(at, kind, row) for at, kind, line in lines for row in wrap(line)]
    if len(rows) > MOST_ROWS:
        raise ValueError(f"{len(rows)} rows, more than {MOST_ROWS}: record fewer commands")
    wide, high = int(COLUMNS * LETTER) + 24, len(rows) * ROW + 28
    texts = [
        f'<text x="14" y="{at * ROW + 28}" class="{kind}" style="animation-delay:{when:.2f}s">{html.escape(row)}</text>'
        for at, (when, kind, row) in enumerate(rows)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" role="img">'
    title = "<title>A recording of muster in a terminal</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *texts, "</svg>", ""])


if __name__ == "__main__":
    picture = draw(list(run_all(Path(sys.argv[1]), sys.argv[2:])))
    Path(__file__).with_name("recording.svg").write_text(picture, encoding="utf-8")
