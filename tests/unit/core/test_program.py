"""Messages name the command that the user types, and leave the user's own text as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[3]
REFUSED = """
import sys
sys.argv[0] = sys.argv[1]
from pathlib import Path
from deploy.core.errors import UsageError
from deploy.run import record
try:
    record.choose(Path("runs"), "no fab such make up folder RUN=1", ())
except UsageError as fault:
    print(fault.message, fault.hint, sep="\\n")
"""


@pytest.mark.parametrize(
    ("program", "option", "command"), [(".venv/bin/fab", "RESUME", "make"), ("/opt/bin/muster", "--resume", "muster")]
)
def test_a_message_names_the_users_command_and_not_the_users_text(program, option, command):
    words = [sys.executable, "-c", REFUSED, program]
    message, hint = subprocess.run(words, cwd=HOME, capture_output=True, text=True, check=True).stdout.splitlines()
    assert message == f"{option}=no fab such make up folder RUN=1: no such folder"
    assert f"`{command} runs`" in hint
