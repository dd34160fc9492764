"""A process notes the exception that ends it, whatever becomes of what the process prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.node.ending import script_verdict, training_alone
from trainer.node.ending.rank_lives import Life
from trainer.node.rank.failure import MOST, words


def rank(folder: Path, code: str, **more: str) -> subprocess.Popen[bytes]:
    """Start a watched rank that runs this code."""
    given = {"MUSTER_OUTCOME_DIR": str(folder), "RANK": "0", "PYTHONPATH": str(training_alone.SITE)}
    return subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, env={**os.environ, **given, **more}
    )


@pytest.mark.parametrize(
    ("raises", "noted"),
    [
        ("os.close(1); os.close(2); raise ValueError('bad sample 7')", "ValueError: bad sample 7"),
        ("raise ExceptionGroup('batch', [ValueError('a'), KeyError('b')])",
         "ExceptionGroup: batch (2 sub-exceptions): ValueError: a; KeyError: 'b'"),
        ("raise ValueError('caf\\udce9 ' + 'x' * 100_000)", ("ValueError: caf\\udce9 " + "x" * MOST)[:MOST]),
        ("raise subprocess.CalledProcessError(1, 'false')",
         "subprocess.CalledProcessError: Command 'false' returned non-zero exit status 1."),
    ],
)  # fmt: skip
def test_the_exception_is_noted_by_the_process_that_it_ends(tmp_path: Path, raises: str, noted: str) -> None:
    process = rank(tmp_path, f"import os, subprocess\n{raises}")
    assert process.wait(60) == 1
    assert training_alone.error_of(tmp_path, process.pid)["error"] == noted


def test_an_exception_that_cannot_be_printed_is_noted_and_not_the_print_error(tmp_path: Path) -> None:
    code = (
        "import sys\nnoting = sys.excepthook\n"
        "try: raise ValueError('bad')\nexcept ValueError as fault: noting(ValueError, fault, None)\n"
        "noting(OSError, OSError('closed'), None)"
    )
    process = rank(tmp_path, code)
    assert process.wait(60) == 0
    assert training_alone.error_of(tmp_path, process.pid)["error"] == "ValueError: bad"


def test_a_secret_in_an_exception_is_not_noted(tmp_path: Path) -> None:
    secret = "hunter2-of-the-run"
    code = "import os\nvalue = os.environ.pop('WANDB_API_KEY')\nraise ValueError('x' * 270 + value + value)"
    assert rank(tmp_path, code, MUSTER_SECRET_NAMES="WANDB_API_KEY", WANDB_API_KEY=secret).wait(60) == 1
    noted = (tmp_path / "journal.jsonl").read_text()
    assert secret[:4] not in noted
    assert "***" in noted


def test_an_exit_without_an_exception_leaves_no_note(tmp_path: Path) -> None:
    process = rank(tmp_path, "import sys\nsys.exit(7)")
    assert process.wait(60) == 7
    assert training_alone.error_of(tmp_path, process.pid) == {}


def test_a_ranks_printed_error_comes_before_its_note_and_a_lost_peer_stays_one() -> None:
    heard = script_verdict.LastWords(("...",), "KeyError: 'label'")
    assert script_verdict.with_noted_error(heard, "ValueError: noted") == heard
    assert script_verdict.with_noted_error(script_verdict.LastWords(), "ValueError: noted") == script_verdict.LastWords(
        (), "ValueError: noted"
    )
    lost = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:4242"
    assert script_verdict.with_noted_error(script_verdict.LastWords(), lost).victim


def test_an_exit_code_without_an_exception_is_reported_as_such() -> None:
    life = Life(rank=1, local_rank=0, attempt=0, world=3, pid=7, began=1.0, ended=2.0, code=7)
    said = script_verdict.why_failed(script_verdict.LastWords(), "ended with code 7", "train.py", "b", life)
    assert said.message == "train.py ended with code 7 without an exception"


def test_a_message_of_several_lines_is_noted_by_its_first_line() -> None:
    assert words(RuntimeError("one\ntwo")) == "RuntimeError: one"
    assert words(RuntimeError()) == "RuntimeError"
