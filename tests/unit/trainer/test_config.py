"""Options are checked before anything is started, and a fault names the option."""

import subprocess
import sys

import pytest

from muster.errors import Refused
from trainer.config import Config, parse


def test_the_command_line_wins_over_the_recipe_which_wins_over_us(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "DEFAULTS = {'steps': 77, 'lr': 0.5}\ndef model(): ...\ndef datasets(data): ...\ndef loss(model, batch): ...\n"
    )
    config = parse(["--recipe", str(file), "--lr", "0.25"])
    assert (config.steps, config.lr, config.keep) == (77, 0.25, Config.keep)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stpes", "10"], "--stpes"),
        (["--step", "10"], "--step"),  # no abbreviations: they change meaning when an option is added
        (["--steps", "0"], "at least 1"),
        (["--steps", "ten"], "not a whole number"),
        (["--lr", "nan"], "--lr"),
        (["--lr", "-1"], "at least 0"),
        (["--precision", "fp8"], "fp8"),
        (["--backend", "mpi"], "mpi"),
        (["--recipe", "nowhere.py"], "nowhere.py"),
        (["--resume", "no/such/place"], "no/such/place"),
        (["--data", "no/such/place"], "no/such/place"),
        (["surprise"], "surprise"),
    ],
)
def test_nonsense_is_refused_by_name(arguments, words):
    with pytest.raises(Refused) as fault:
        parse(arguments)
    assert words in fault.value.message
    assert fault.value.hint


def test_an_empty_data_folder_is_refused(tmp_path):
    with pytest.raises(Refused, match="empty"):
        parse(["--data", str(tmp_path)])


def test_unknown_keys_in_a_recipes_defaults_are_refused(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("DEFAULTS = {'stpes': 7}\ndef model(): ...\ndef datasets(data): ...\ndef loss(model, batch): ...\n")
    with pytest.raises(Refused, match="stpes"):
        parse(["--recipe", str(file)])


def test_refusing_needs_no_torch():
    code = (
        "import sys\nfrom trainer.__main__ import main\n"
        "code = main(['--stpes', '1'])\nprint(code, 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["2", "False"]
    assert "error: " in ran.stderr
    assert "Traceback" not in ran.stderr
