"""Two runs side by side: what differs, their numbers and curves."""

from __future__ import annotations

import pytest

from deploy.report import compare
from deploy.run.files import code
from tests.unit.report.test_page import ENVIRONMENT, HOSTILE, sample, write, write_lines
from tests.unit.report.test_script_page import RECORD, START, plain_run, watched_run


def differing(compared):
    """The differing values, by group and name."""
    return {(group, row.name): tuple(row.values) for group, rows in compared.differences for row in rows}


def numbers(compared):
    """The numbers of both runs, by name."""
    return {row.name: tuple(row.values) for row in compared.numbers}


def test_two_runs_of_the_trainer_differ_in_what_was_asked_for(tmp_path):
    first, second = sample(tmp_path / "a"), sample(tmp_path / "b")
    assert compare.compare([first, second]).differences == []
    write(second / "config.json", {"recipe": "digits", "steps": 900, "batch": 96, "lr": 3e-3, "precision": "bf16"})
    write(second / "environment.json", {**ENVIRONMENT, "torch": "2.14.0", "packages": {"numpy": "2"}, "host": "other"})
    write(second / "outcome.json", {"verdict": "failed", "seconds": 60.0})
    compared = compare.compare([first, second])
    assert differing(compared)["Command", "precision"] == ("fp32", "bf16")
    assert differing(compared)["Packages", "torch"] == ("2.13.0+cpu", "2.14.0")
    assert differing(compared)["Packages", "numpy"] == ("", "2")
    assert not [name for _, name in differing(compared) if name in ("host", "lr")]
    assert numbers(compared)["end"] == ("done", "failed")
    assert next(row.ratio for row in compared.numbers if row.name == "seconds") == "2.01 ×"
    assert [curve.name for curve in compared.curves] == ["loss", "step time", "loss"]


def test_two_runs_of_a_script_differ_in_code_script_and_hosts(tmp_path):
    first, second = watched_run(tmp_path / "a"), plain_run(tmp_path / "b")
    write(second / "record.json", {**RECORD, "arguments": ["--per-node", "bash", "run.sh"], "hosts": ["gpu-a"]})
    code.write(first, code.Code("aaa", "main"))
    code.write(second, code.Code("aaa", "main", ("train.py",), diff="+x\n"))
    compared = compare.compare([first, second])
    assert differing(compared)["Command", "script"] == ("train.py --lr 3e-4", "bash run.sh")
    assert differing(compared)["Code", "changed"] == ("", "train.py")
    assert ("Code", "commit") not in differing(compared)
    assert differing(compared)["Hosts", "hosts"] == ("", '["gpu-a"]')
    assert numbers(compared)["steps"] == ("20", "")
    assert compared.curves[0].runs[1] == []


def test_the_text_has_a_line_for_each_curve_and_difference(tmp_path):
    lines = compare.lines(compare.compare([watched_run(tmp_path / "a"), watched_run(tmp_path / "b")]))
    assert lines[0].split() == ["a", "b"]
    assert any(line.startswith("loss        a   0.100 ") for line in lines)
    assert any("the runs have the same command" in line for line in lines)


def test_control_characters_in_a_runs_text_are_escaped(tmp_path):
    first, second = plain_run(tmp_path / "a"), plain_run(tmp_path / "b")
    odd = HOSTILE + "\x1b[2J\n"
    write(second / "record.json", {**RECORD, "arguments": [odd], "nodes": [odd]})
    write(second / "environment.json", {odd: odd, "packages": {odd: odd}, "variables": {odd: odd}, "torch": [odd]})
    compared = compare.compare([first, second])
    text = "\n".join(compare.lines(compared))
    assert "\x1b" not in text
    assert "\\x1b" in text
    text.encode()


def test_endless_differences_are_cut_and_counted(tmp_path):
    first, second = plain_run(tmp_path / "a"), plain_run(tmp_path / "b")
    write(second / "environment.json", {"packages": {f"p{n}": "x" * 10_000 for n in range(500)}})
    compared = compare.compare([first, second])
    assert compared.left_out == 500 - compare.ROWS
    assert len("\n".join(compare.lines(compared))) < 100_000


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"null",
        b"[1]",
        b'{"t": {}',
        b'{"step": 5, "loss": NaN, "packages": 7}',
        b'{"verdict": "done", "seconds": 5e-324}',
    ],
)
def test_rubbish_in_any_file_never_raises(tmp_path, rubbish):
    first, second = sample(tmp_path / "a"), watched_run(tmp_path / "b")
    write_lines(second / "telemetry/master.jsonl", [{"t": START, "node": "master"}])
    for path in second.rglob("*.json*"):
        path.write_bytes(rubbish)
    compared = compare.compare([second, first])
    assert compare.lines(compared)
    compare.compare([tmp_path / "none", tmp_path / "neither"])
