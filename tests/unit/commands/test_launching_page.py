"""Every row of docs/how-to/launch.md: what users type is accepted or refused with what works; its offers are valid."""

import re
import shlex
from pathlib import Path

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError
from deploy.job.options import Options
from deploy.job.script import once_a_node, read
from deploy.slurm.planned import planned
from tests.typed import split

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/launch.md").read_text()
ROWS = [
    line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `") or line.startswith("| a ")
]
COMMANDS = ("python", "torchrun", "accelerate", "deepspeed", "bash", "srun", "mpirun", "lightning", "fabric")
TYPED = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row[0]) if text.split()[0] in COMMANDS]
OFFERED = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row[1])]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with all the scripts that the page mentions."""
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "main.py", "run.sh", "pkg/train.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_has_the_forms_that_users_type():
    assert len(ROWS) >= 14
    assert len(TYPED) >= 14


@pytest.mark.parametrize("text", TYPED)
def test_what_users_type_is_accepted_or_refused_with_a_command_that_is_accepted(text, folder):
    try:
        words = read(text, folder).words
    except UsageError as refused:
        words = read(instead_of(text, refused.hint), folder).words
    assert words


def instead_of(text, hint):
    """The script command that the hint of a refusal offers."""
    offered, less = re.search(r"-- (.+?)(?: \(.*|; or .*)?$", hint), re.search(r"leave out (\S+)", hint)
    return offered[1] if offered else re.sub(rf"{less[1]} \S+ ", "", text)


@pytest.mark.parametrize("text", OFFERED)
def test_each_command_that_the_page_offers_is_accepted_with_its_script(text, folder):
    typed = shlex.split(text.partition(" >")[0])
    words, program = split(typed[typed.index("muster") + 1 :])
    command = main.TREE.get_command(None, words[0])
    named = [word for word in words[1:] if word.startswith("--")]
    assert {name.partition("=")[0] for name in named} <= {flag for each in command.params for flag in each.opts}
    behind = [*words[2:], ""][: len(words) - 1]
    pairs = dict(word.removeprefix("--").split("=", 1) if "=" in word else (word.removeprefix("--"), after)
                 for word, after in zip(words[1:], behind, strict=True) if word.startswith("--"))  # fmt: skip
    script = once_a_node(pairs.get("each", ""), pairs.get("script", "") or shlex.join(program))
    assert planned(Options(script=script))[0][0] == "--script"


def test_every_section_that_a_row_names_exists():
    headings = {
        re.sub(r"[^a-z -]", "", line[3:].lower()).replace(" ", "-") for line in PAGE.splitlines() if line[:3] == "## "
    }
    assert set(re.findall(r"\(#([a-z-]+)\)", PAGE)) <= headings
