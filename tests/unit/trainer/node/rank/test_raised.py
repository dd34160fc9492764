"""Exceptions that reach the top of a thread are noted, for a process that then does not end."""

import json
import subprocess
import sys

from trainer.node.hang import stacks

_SCRIPT = """
import json, threading
from trainer.node.rank.raised import UncaughtErrors
raised = UncaughtErrors()
raised.notify = lambda: print(json.dumps(raised.about()), flush=True)
class Odd(Exception):
    def __str__(self):
        raise RuntimeError
def fails():
    {thread}
thread = threading.Thread(target=fails)
thread.start()
thread.join()
{main}
"""


def noted(main: str, thread: str = "pass") -> dict[str, str]:
    text = _SCRIPT.format(main=main, thread=thread)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1, "the exception ends the script as ever"
    assert "Traceback" in ran.stderr
    return json.loads(ran.stdout)


def test_the_first_line_of_a_long_message_is_noted_and_that_of_a_thread_too() -> None:
    assert noted("raise ValueError('row 7\\nx' * 99_999)", "1 / 0") == {
        "error": "ValueError: row 7",
        "thread_error": "ZeroDivisionError: division by zero",
    }


def test_an_error_whose_message_fails_is_noted_by_its_class() -> None:
    assert noted("raise Odd") == {"error": "Odd"}
    assert len(noted("raise ValueError('x' * 999_999)")["error"]) == 300


def test_looks_include_the_errors_of_their_process() -> None:
    about = {"t": 1.0, "pid": 7, "step": 3, "error": "ValueError: row 7"}
    (look,) = stacks.parse(f"Look {json.dumps(about)}\n")
    assert (look.error, look.thread_error) == ("ValueError: row 7", "")


def test_a_threads_error_is_noted_despite_the_scripts_own_hook_once_it_trains() -> None:
    """A script that logged its threads' errors had silenced our hook: a failed training counted as ended well."""
    own = "threading.excepthook = lambda about: None; raised.hear_threads(); raised.hear_threads()"
    text = _SCRIPT.format(thread="1 / 0", main="print(list(raised.by_thread.values()))")
    text = text.replace("thread = threading", f"{own}\nthread = threading", 1)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "['ZeroDivisionError: division by zero']\n", ran.stderr
