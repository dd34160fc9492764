"""What is said of a word that the command line does not know."""

import subprocess
import sys

import pytest

from deploy.cli import typos

OPTIONS, TASKS = ["--hosts", "--script", "--json"], ["deploy", "down", "status", "up"]


@pytest.mark.parametrize(
    ("typed", "word", "task", "hint"),
    [
        ("deploy --host a", "--host", "deploy", "did you mean --hosts?"),
        ("deploy --host=a", "--host=a", "deploy", "did you mean --hosts=a?"),
        ("deploy --hosts a train.py --lr 3", "train.py", "deploy", "fab deploy --hosts a -- train.py --lr 3"),
        ("up torchrun train.py", "torchrun", "up", "fab up -- torchrun train.py"),
        ("deploy --hosts a, b", "b", "deploy", "a,b"),
        ("deply --hosts a", "deply", "", "fab deploy"),
        ("qqq", "qqq", "", "fab --list"),
        ("status --zzz", "--zzz", "status", "fab --help status"),
    ],
)
def test_a_typo_gets_what_its_user_may_have_meant(typed, word, task, hint):
    refused = typos.refusal(f"No idea what {word!r} is!", task, OPTIONS, TASKS, typed.split())
    assert refused.code == 2
    assert hint in refused.hint


MUSTER = """import sys
sys.argv[0] = "muster"
from deploy.cli import main
main.version = lambda name: "1"
main.main()"""


@pytest.mark.parametrize(
    ("program", "typed", "hint"),
    [(["-m", "fabric"], "status --host a", "--hosts"), (["-c", MUSTER], "--help statsu", "status")],
)
def test_both_programs_hint_at_the_name(program, typed, hint):
    done = subprocess.run(
        [sys.executable, *program, *typed.split()], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert hint in done.stderr.partition("hint:")[2]


def test_the_help_of_muster_begins_with_its_commands():
    done = subprocess.run([sys.executable, "-c", MUSTER, "--help"], capture_output=True, text=True, timeout=60)
    assert "deploy" in done.stdout
    assert "sudo" not in done.stdout
