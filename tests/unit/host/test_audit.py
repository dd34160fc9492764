"""The audit log on a host: its actions are a closed list, and some command logs each of them."""

import re
from pathlib import Path

from deploy.host.audit import Action

HOME = Path(__file__).resolve().parents[3]


def test_commands_write_each_action_of_the_audit_log_and_no_other():
    texts = [path.read_text() for path in (HOME / "deploy").rglob("*.py")]
    called = [name for text in texts for name in re.findall(r"\baudit\.note\(\w+, ([\w.]+)", text)]
    assert {name.removeprefix("audit.Action.") for name in called} == {*Action.__members__}
    assert all("{what}" in action for action in Action)


def test_clean_finds_your_images_by_the_word_that_a_push_logs():
    (word,) = re.findall(r"from \[\^ \]\*: (\w+) ", (HOME / "deploy/host/scripts/clean_list.sh").read_text())
    assert f"{word} {{what}}" == Action.PUSHED
