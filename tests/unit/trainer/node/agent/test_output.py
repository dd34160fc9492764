"""What ranks print is whole in their logs and in lines on the console, whatever they print and however fast."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.node.agent import output
from trainer.node.rank.mask import FEW

# These tests start programs.
pytestmark = pytest.mark.long

HOME = Path(__file__).resolve().parents[5]

# One process plays torchrun: it starts a rank for each script of argv[3:] as torchrun does, one after the other.
NODE = """
import os, pathlib, subprocess, sys
from trainer.node.agent import output; from trainer.node.ending import rank_lives
outcome, folder, scripts = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
os.environ["MUSTER_OUTCOME_DIR"] = str(outcome)
output._MOVING_EVERY_S = 0.2
hidden = os.environ.get("HIDDEN", "").split()
relay = output.Output(outcome, folder, {**os.environ, "PET_NPROC_PER_NODE": str(len(scripts))}, hidden)
# It prints once the ranks have their pipes: what it says before that has no mark.
words = "import sys; sys.stdin.read(); print('torchrun is here')"
torchrun = subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
relay.follow(torchrun)
again = os.environ.get("AGAIN")
for place, script in [*enumerate(scripts), *([(0, again)] if again else [])]:
    pipe = relay.pipes[place]
    process = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=pipe, stderr=pipe)
    own = {"RANK": str(place + 4), "WORLD_SIZE": "9", "TORCHELASTIC_RESTART_COUNT": "0"}
    rank_lives.note_begin(place, process.pid, own)
    process.wait()
    print(repr(relay.words(place)[-200:]), file=sys.stderr)
torchrun.stdin.close()
torchrun.wait()
relay.finish()
"""


@pytest.fixture
def node(tmp_path):
    """Return a function that runs a rank for each script.

    It returns the console, the ranks' last words as the agent reads them, and the run folder.
    """

    def run(*scripts, **environment):
        outcome = tmp_path / "outcome"
        outcome.mkdir()
        line = [sys.executable, "-c", NODE, str(outcome), str(tmp_path / "run"), *scripts]
        done = subprocess.run(
            line, cwd=HOME, env={**os.environ, **environment}, capture_output=True, check=True, timeout=60
        )
        return done.stdout.decode(errors="replace"), done.stderr.decode(), tmp_path / "run"

    return run


def log(folder, rank):
    return (folder / f"logs/rank-{rank}.log").read_bytes()


def test_each_rank_has_its_log_and_its_name_on_a_shared_console(node):
    console, _, folder = node("print('one')", "import sys; print('two', file=sys.stderr)")
    assert log(folder, 4) == b"one\n"
    assert log(folder, 5) == b"two\n"
    assert {"[rank4]: one", "[rank5]: two", "torchrun: torchrun is here"} <= set(console.splitlines())


def test_a_rank_alone_on_its_node_needs_no_name(node):
    console, _, _ = node("print('alone')")
    assert "alone" in console.splitlines()


def test_the_agent_reads_a_ranks_output_to_the_end(node):
    _, heard, _ = node("print('x' * 300_000); raise SystemExit('the end')")
    assert "the end" in heard


def test_output_of_a_ranks_earlier_life_is_not_taken_for_this_ones(node):
    _, heard, folder = node("print('KeyError: old')", AGAIN="print('KeyError: new')")
    assert heard.splitlines() == [repr("KeyError: old\n"), repr("KeyError: new\n")]
    assert log(folder, 4) == b"KeyError: old\nKeyError: new\n"


def test_a_progress_bar_is_whole_in_the_log_and_one_line_on_the_console(node):
    bar = "import time\nfor done in range(30): print(f'\\r{done} %', end='', flush=True); time.sleep(0.02)\nprint()"
    console, _, folder = node(bar)
    assert log(folder, 4).count(b"\r") == 30
    lines = [line for line in console.split("\n") if "%" in line]
    assert lines[-1] == "29 %"
    assert 1 < len(lines) < 20  # a few of 30; how many depends on the machine's load
    assert all(line.startswith("\r") for line in lines[:-1])


KEY = "sk-4711-sesame-open"


@pytest.mark.holds("secrets-masked")
def test_a_secret_that_is_printed_in_pieces_is_hidden_however_long_the_pauses(node):
    script = rf"""
import sys, time
for cut in (4, 11, 18):
    print({KEY[:1]!r} + {KEY[1:]!r}[:cut - 1], end="", flush=True)
    time.sleep(1.6)
    print({KEY!r}[cut:], flush=True)
print("".join("\x1b[3" + str(n % 8) + "m" + letter for n, letter in enumerate({KEY!r})), "at", flush=True)
for letter in {KEY!r}[:8]:
    print(letter, end="", flush=True)
    time.sleep(0.3)
print("\nover")
"""
    console, heard, folder = node(script, HIDDEN=KEY)
    text = log(folder, 4).decode()
    assert [line[-3:] for line in text.splitlines()[:3]] == ["***"] * 3
    assert len("".join(text.splitlines()[:3])) <= 3 * len("***") + 3 * FEW
    assert text.splitlines()[3].endswith(" at")
    assert text.endswith("\nsk-4711-\nover\n"), "what only begins like it is shown"
    assert "sk-4711-sesame" not in console + heard + text
    assert "over" in console


@pytest.mark.holds("secrets-masked")
def test_a_rank_that_ends_amid_a_secret_shows_no_more_than_half_of_it_in_its_own_log(node):
    _, heard, folder = node(f"print('key', {KEY[:15]!r}, end='')", "print('next')", HIDDEN=KEY)
    assert log(folder, 4) == b"key ***"
    assert log(folder, 5) == b"next\n"
    assert KEY[:10] not in heard


@pytest.mark.holds("secrets-masked")
def test_text_that_looks_like_the_beginning_of_a_secret_delays_no_line(node):
    console, _, _ = node("import time; print('hosts', flush=True); time.sleep(2)", HIDDEN="sesame-open")
    assert "hosts" in console


def test_an_unfinished_line_is_shown_while_it_waits(node):
    console, _, _ = node("import time; print('Password: ', end='', flush=True); time.sleep(1)")
    assert "\rPassword: " in console


def test_a_flood_is_whole_in_the_log_and_what_the_console_leaves_out_is_counted(node):
    piece = "f'{number:08d}' + 'x' * 91 + '\\n' + ('y' * 99 + '\\n') * 1000"
    flood = f"import sys\nfor number in range(150): sys.stdout.write({piece})"
    console, _, folder = node(flood)
    assert len(log(folder, 4)) == 150 * 100 * 1001
    shown = [line for line in console.splitlines() if line.startswith("muster: ")]
    missing = sum(int(line.split()[1]) for line in shown)
    lines = sum(line.endswith(("x" * 80, "y" * 80)) for line in console.splitlines())
    assert shown
    assert 150 * 1001 - 2 * len(shown) <= missing + lines <= 150 * 1001 + 2 * len(shown)  # a line may be cut in two


def test_a_log_ends_at_its_limit_and_says_what_is_missing(node):
    _, _, folder = node("print('first'); print('x' * 200_000); print('last')", MUSTER_LOG_LIMIT="1000")
    text = log(folder, 4).decode()
    assert text.startswith("first\n")
    assert "199012 bytes are missing here" in text
    assert text.endswith("last\n")
    assert len(text) < 100_000


def test_binary_junk_and_a_line_without_an_end_come_through(node):
    escapes = ("b'\\x1b]0;title\\x07\\x1b[2J' * 1000", "b'\\r' + b'\\x1b[A' * 100_000")
    junk = ("bytes(range(256)) * 1000", *escapes, "b'z' * 1_000_000")
    _, _, folder = node(*(f"import sys; sys.stdout.buffer.write({bytes_}); sys.stdout.flush()" for bytes_ in junk))
    assert [log(folder, 4 + number) for number in range(4)] == [eval(bytes_) for bytes_ in junk]


class Lines:
    """A console with room for everything."""

    def __init__(self, lines):
        self.put = lambda new: lines.extend(line.decode().rstrip("\n") for line in new)

    def room(self):
        return 1 << 30


def test_two_progress_bars_leave_one_line_when_they_end_and_text_between_them_stays():
    """The bars are as tqdm draws an outer and an inner one (leave=False), read in pieces of any size."""
    inner = "".join(f"\n\repoch: {done}/2\x1b[A" for done in range(3)) + "\n\r          \x1b[A"
    epochs = [f"\repochs: {epoch}/3{inner}" for epoch in range(3)]
    text = "begins\n" + epochs[0] + epochs[1] + "\r         \rsaved 1\n" + epochs[2] + "\repochs: 3/3\r3 epochs\nnext\n"
    for size in (1, 2, 5, 7, len(text)):
        lines = []
        source = output._Source(Lines(lines))
        for start in range(0, len(text), size):
            source.take(text[start : start + size].encode())
        assert lines == ["begins", "saved 1", "3 epochs", "next"], size


def test_a_bar_that_ends_shows_its_last_state_though_another_follows():
    lines = []
    source = output._Source(Lines(lines))
    source.take(b"\repoch 0: 1/2\repoch 0: 2/2\n")
    source.show_unfinished(time.monotonic() + 0.3)
    assert lines == ["epoch 0: 2/2"]
    source.take(b"\repoch 1: 1/2\repoch 1: 2/2\n\repoch 2: 0/2")
    source.take(b"\repoch 2: 1/2\repoch 2: 2/2\n")
    source.take(b"finished\n")
    assert lines == ["epoch 0: 2/2", "epoch 1: 2/2", "epoch 2: 2/2", "finished"]


def test_a_progress_bar_below_another_is_whole_in_the_log_and_leaves_no_console_lines(node):
    valid = "[(print(f'\\n\\rvalid {n}\\x1b[A', end=''), time.sleep(0.3)) for n in range(5)]"
    bar = f"import time; print('epoch 0', end=''); {valid}; print('\\rloss 3\\x1b[K')"
    console, words, folder = node(bar, "pass")
    lines = [line for line in console.split("\n") if "rank4" in line]
    assert [line for line in lines if "\r" not in line] == ["[rank4]: epoch 0", "[rank4]: loss 3"]
    assert "[rank4]: \rvalid 1" in lines
    assert "x1b" not in words
    assert log(folder, 4).count(b"\x1b[A") == 5
