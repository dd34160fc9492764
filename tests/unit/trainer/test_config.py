"""Options are checked before anything is started, and an error names the option."""

import dataclasses
import errno
import subprocess
import sys
from pathlib import Path

import pytest

from muster.errors import Refused
from trainer.config import Config, main, parse, parser


def test_the_command_line_wins_over_the_recipe_which_wins_over_our_defaults(tmp_path):
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
        (["--lr", "inf"], "--lr"),
        (["--steps", "9" * 400], "at most 1e+300"),
        (["--lr", "1e301"], "at most 1e+300"),
        (["--lr", "-1"], "at least 0"),
        (["--precision", "fp8"], "fp8"),
        (["--backend", "mpi"], "mpi"),
        (["--recipe", "nowhere.py"], "nowhere.py"),
        (["--resume", "no/such/place"], "no/such/place"),
        (["--data", "no/such/place"], "no/such/place"),
        (["--data", __file__], f"--data: no such folder: {__file__}"),
        (["--data", "long" * 2000], "File name too long"),
        (["--resume", "long" * 2000], "File name too long"),
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


def test_a_data_folder_of_another_user_is_named(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(Refused, match=f"{tmp_path}: Permission denied"):
        parse(["--data", str(tmp_path)])


def test_a_recipe_may_leave_an_option_at_our_default(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "DEFAULTS = {'data': None, 'compile': False}\ndef model(): ...\ndef datasets(data): ...\ndef loss(m, b): ...\n"
    )
    assert (parse(["--recipe", str(file)]).data, parse(["--recipe", str(file)]).compile) == (None, False)


@pytest.mark.parametrize("key", ["stpes", "recipe"])
def test_unknown_keys_in_a_recipes_defaults_are_refused_with_the_known_ones(tmp_path, key):
    file = tmp_path / "mine.py"
    file.write_text(f"DEFAULTS = {{'{key}': '7'}}\ndef model(): ...\ndef datasets(data): ...\ndef loss(m, b): ...\n")
    with pytest.raises(Refused, match=f"DEFAULTS sets unknown option {key}") as fault:
        parse(["--recipe", str(file)])
    assert "the options are: data, steps, " in fault.value.hint


def test_every_field_of_a_configuration_has_an_option():
    typed = {words for action in parser()._actions for words in action.option_strings}
    assert {"--" + field.name.replace("_", "-") for field in dataclasses.fields(Config)} <= typed


def test_a_check_of_the_options_says_what_is_wrong_and_what_to_do_a_line_each(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["config", "--stpes", "1"])
    assert main() == 2
    wrong, what_to_do = capsys.readouterr().out.splitlines()
    assert "--stpes" in wrong
    assert "--help" in what_to_do
    monkeypatch.setattr(sys, "argv", ["config", "--steps", "1"])
    assert main() == 0
    assert capsys.readouterr().out == ""


def test_refusing_needs_no_torch():
    code = (
        "import sys\nfrom trainer.__main__ import main\n"
        "code = main(['--stpes', '1'])\nprint(code, 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["2", "False"]
    assert "error: " in ran.stderr
    assert "Traceback" not in ran.stderr
