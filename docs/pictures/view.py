"""The picture of the live view in the README, replayed from a finished run.

python docs/pictures/view.py runs/<id> STEP  ->  docs/pictures/view.svg
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from deploy.report import live_view
from deploy.report.console import THEME
from deploy.run import environment
from deploy.run.progress import State

WIDTH, HEIGHT = 112, 12


def events(run: Path) -> list[dict]:
    """Everything the ranks told, by time."""
    found = [json.loads(line) for path in run.glob("ranks/*.jsonl") for line in path.read_text().splitlines()]
    found += [{"kind": "metrics", **json.loads(line)} for line in (run / "metrics.jsonl").read_text().splitlines()]
    return sorted(found, key=lambda event: event["t"])


def main() -> None:
    run, step = Path(sys.argv[1]), int(sys.argv[2])
    record = json.loads((run / "record.json").read_text())
    state = State(tuple(record["nodes"]))
    for event in events(run):
        state.apply(event)
        if state.step >= step:
            break
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, theme=THEME)
    words = record["arguments"]
    name = words[0] if record.get("script") else environment.recipe_name(words)
    console.print(live_view.view(state, name, record["why"], WIDTH, HEIGHT))
    picture = console.export_svg(title="muster deploy")
    # Without rich's web fonts: a picture asks no server for anything.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    Path(__file__).with_name("view.svg").write_text(picture)


if __name__ == "__main__":
    main()
