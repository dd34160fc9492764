"""A program that this host lacks is refused before anything starts, with a command that works without it."""

from __future__ import annotations

import pytest

from muster.errors import Refused
from trainer.node.agent import command


@pytest.mark.parametrize(
    ("typed", "works"),
    [
        ("nsys-none profile -o x /usr/bin/python train.py --lr 3", "--script '/usr/bin/python train.py --lr 3'"),
        ("py-spy-none record -- torchrun train.py", "--script 'torchrun train.py'"),
        ("scalene-none train.py", "--script train.py"),
        ("run.sh --lr 3", "--script './run.sh --lr 3'"),
        ("llamafactory-none train x.yaml", "packages"),
        ("scripts", "it is a folder"),
        ("run --lr 3", "did you mean --script 'run.sh --lr 3'?"),
    ],
)
def test_a_missing_program_is_named_with_a_command_that_works_without_it(typed, works, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").touch()
    (tmp_path / "scripts").mkdir()
    with pytest.raises(Refused) as refused:
        command.refuse_missing(typed.split())
    assert typed.split()[0] in refused.value.message
    assert works in refused.value.hint


def test_a_program_that_exists_is_not_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").touch()
    command.refuse_missing(["sh", "-c", "true"])
    command.refuse_missing(["./run.sh"])  # whatever keeps it from running is reported when it is started


@pytest.mark.parametrize(
    ("more", "attempt", "again", "words"),
    [
        ("--resume", "0", False, []),
        ("--resume", "0", True, ["--resume"]),
        ("--resume", "1", False, ["--resume"]),
        ("--init_from=resume 'a b'", "12", True, ["--init_from=resume", "a b"]),
        ("", "3", True, []),
    ],
)
def test_a_later_start_gets_the_arguments_for_restarts(more, attempt, again, words):
    environment = {"TORCHELASTIC_RESTART_COUNT": attempt, **({"MUSTER_RESTART_WITH": more} if more else {})}
    assert command.words_of_start(["python", "train.py"], environment, again) == ["python", "train.py", *words]
