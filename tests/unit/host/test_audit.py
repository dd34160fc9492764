"""The audit log of a host: what it may say is a closed list, and a command does all of it."""

import re
from pathlib import Path

from deploy.host.audit import Action

HOME = Path(__file__).resolve().parents[3]


def test_each_action_is_written_by_a_command_and_the_log_has_no_other():
    texts = [path.read_text() for path in (HOME / "deploy").rglob("*.py")]
    called = [name for text in texts for name in re.findall(r"\baudit\.note\(\w+, ([\w.]+)", text)]
    assert {name.removeprefix("audit.Action.") for name in called} == {*Action.__members__}
    assert all("{what}" in action for action in Action)


def test_what_clean_takes_for_yours_is_what_a_push_writes():
    (word,) = re.findall(r"from \[\^ \]\*: (\w+) ", (HOME / "deploy/host/scripts/clean_list.sh").read_text())
    assert f"{word} {{what}}" == Action.PUSHED
