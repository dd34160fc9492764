"""The step that a script's ranks on a node have reached, for the node's verdict and --on-end."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.node.ending import reached_step


def write(folder: Path, rank: int, node: str, *steps: tuple[float, int]) -> None:
    (folder / "ranks").mkdir(exist_ok=True)
    rows = [{"t": t, "kind": "step", "step": step, "rank": rank, "node": node} for t, step in steps]
    rows.append({"t": 9e9, "kind": "ended", "code": 1, "rank": rank, "node": node})
    (folder / f"ranks/rank-{rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_step_is_that_of_the_nodes_slowest_rank_in_this_start(tmp_path: Path) -> None:
    write(tmp_path, 0, "a", (10.0, 62), (11.0, 64))
    write(tmp_path, 1, "a", (10.0, 62), (10.9, 63))
    write(tmp_path, 2, "b", (11.0, 12))  # hosts may share a folder
    write(tmp_path, 3, "a", (1.0, 7))  # a rank that the host had in an earlier start
    assert reached_step.slowest_step(tmp_path, "a", since=5.0) == 63


def test_the_step_is_0_if_no_rank_has_reported_one(tmp_path: Path) -> None:
    assert reached_step.slowest_step(tmp_path, "a", 0.0) == reached_step.slowest_step(None, "a", 0.0) == 0
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks/rank-0.jsonl").write_bytes(b'{"kind": "step"\n[1, "step"]\n\xff"step"\n')
    assert reached_step.slowest_step(tmp_path, "a", 0.0) == 0


def test_odd_lines_that_a_script_wrote_into_the_file_are_no_step(tmp_path: Path) -> None:
    write(tmp_path, 0, "a", (10.0, 62))
    lines = (
        '{"kind": "step", "step": [], "t": 10.0, "node": "a"}',
        '{"kind": "step", "step": 3, "t": "x", "node": "a"}',
    )
    for line in (*lines, '"step"' + "[" * 200_000):
        (tmp_path / "ranks/rank-0.jsonl").write_text(line + "\n")
        assert reached_step.slowest_step(tmp_path, "a", 0.0) == 0


def test_only_the_end_of_a_file_that_a_script_has_filled_is_read(tmp_path: Path) -> None:
    write(tmp_path, 0, "a", (10.0, 62))
    with (tmp_path / "ranks/rank-0.jsonl").open("a") as file:
        file.write(f"{'x' * 1023}\n" * 1024)
    assert reached_step.slowest_step(tmp_path, "a", 0.0) == 0
