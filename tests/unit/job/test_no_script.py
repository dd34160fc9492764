"""A command without a script names the scripts in its folder, and trains nothing."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
HOME = Path(__file__).resolve().parents[3]
# Runs the installed command in a user's folder instead of the checkout.
TYPED = """
import sys
sys.argv[0] = "muster"
from importlib import metadata
metadata.version = lambda name: "0"
from deploy.commands.main import main
main()
"""


@pytest.fixture
def typed(tmp_path):
    def command(*words):
        line = [sys.executable, "-c", TYPED, *words]
        given = {"PYTHONPATH": str(HOME), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(line, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=60, check=False)

    command.folder = tmp_path
    return command


COMMANDS = {
    "hosts": ("deploy", "--hosts", "a"),
    "slurm": ("deploy", "--slurm", "login"),
    "here": ("up", "--backend", "processes"),
    "agent": ("agent",),
    "a file": ("export",),
}


@pytest.mark.parametrize("where", COMMANDS)
def test_without_a_script_nothing_starts_and_the_likely_script_is_named(typed, where):
    for name in ("model.py", "train.py", "setup.py", "test_model.py", "notes.txt"):
        (typed.folder / name).write_text("")
    done = typed(*COMMANDS[where])
    assert (done.returncode, done.stdout) == (2, "")
    assert "the script is missing" in done.stderr
    assert f"did you mean `muster {shlex.join(COMMANDS[where])} train.py`? (model.py lies beside it)" in done.stderr
    assert f'`muster {shlex.join(COMMANDS[where])} --args="--recipe digits"`' in done.stderr
    assert not (typed.folder / "runs").exists()


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["src/main.py", "src/net.py"], " src/main.py`"),
        (["run.sh"], " bash run.sh`"),
        (["my train.py"], " 'my train.py'`"),
        (["-x.py", ".hidden.py", "__init__.py"], "has no script: run this command in your script's folder"),
    ],
)
def test_the_script_is_named_as_the_user_would_type_it(typed, files, named):
    for name in files:
        (typed.folder / name).parent.mkdir(exist_ok=True)
        (typed.folder / name).write_text("")
    assert named in typed("deploy", "--hosts", "a").stderr


def test_the_script_is_looked_for_in_the_named_folder(typed):
    (typed.folder / "sub").mkdir()
    (typed.folder / "sub/train.py").write_text("")
    done = typed("up", "--folder", "sub")
    assert (done.returncode, "muster up --folder sub train.py" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (".", ".: this is a folder, but ranks can only start a script", "did you mean train.py?"),
        ("src/", "src/: this is a folder, but ranks can only start a script", "did you mean src/net.py?"),
        ("python -u src", "src: this is a folder, but ranks can only start a script", "did you mean src/net.py?"),
        ("..", "..: it is outside", "--folder .. sends that folder: name a script in it"),
    ],
)
def test_for_a_folder_in_place_of_a_script_the_likely_script_is_named(typed, words, what, hint):
    """Earlier, `muster up .`, typed as for docker, failed with a traceback."""
    (typed.folder / "src").mkdir()
    for name in ("train.py", "src/net.py"):
        (typed.folder / name).write_text("")
    done = typed("up", "--backend", "processes", *words.split())
    assert done.returncode == 2
    assert f"error: {what}" in done.stderr
    assert f"hint: {hint}" in done.stderr
