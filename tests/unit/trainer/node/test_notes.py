"""The table of the notes in a node's private folder lists all notes that the code uses, and no others."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from muster.reserve import JOURNAL, note
from trainer.node.notes import NOTES, Journal
from trainer.node.rank import place

HOME = Path(__file__).resolve().parents[4]
SOURCES = {
    str(path.relative_to(HOME)): path.read_text()
    for top in ("trainer", "muster")
    for path in (HOME / top).rglob("*.py")
}
# How code names a file of that folder: outcome / "x", Path(agent, "x"), os.path.join(outcome, f"x-{y}").
_NAMED = re.compile(
    r"""(?:\b_?outcome\)?|\bagent\)?|"MUSTER_OUTCOME_DIR"(?:, "")?\]?\)+)(?: / |, )f?"([^"\s]+)"(?![\]"\w])"""
)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name)
def test_the_code_of_each_writer_and_reader_of_a_note_names_it(note):
    mark = note.name.replace("*", "")
    for path in (*note.writes, *note.reads):
        assert mark in SOURCES[path] or (note.constant and note.constant in SOURCES[path]), path
    assert note.says


@pytest.mark.parametrize(
    "note", [note for note in NOTES if note.constant and "*" not in note.name], ids=lambda note: note.name
)
def test_a_constant_for_a_note_has_its_name(note):
    assigned = re.compile(rf"^[^#\n]*\b{note.constant}\b[^=\n]*= .*\"{re.escape(note.name)}\"", re.MULTILINE)
    assert any(assigned.search(text) for path, text in SOURCES.items() if path != "trainer/node/notes.py")


def test_every_file_that_the_code_names_in_the_private_folder_is_in_the_table():
    named = {
        (re.sub(r"\{[^{}]*\}", "7", name), path) for path, text in SOURCES.items() for name in _NAMED.findall(text)
    }
    assert len(named) > 3
    assert not {each for each in named if not any(fnmatch(each[0], note.name) for note in NOTES)}


def test_a_process_below_a_rank_writes_into_the_same_journal_as_all_others():
    """Such a process may import nothing of Muster's, so its code repeats the journal's name."""
    assert place.JOURNAL == JOURNAL


def test_a_reader_gets_each_whole_row_once_whatever_is_between_them(tmp_path):
    journal = Journal(tmp_path)
    assert (journal.read(), journal.newest("says")) == ([], {})
    note(tmp_path, says={"number": 1})
    (tmp_path / JOURNAL).open("ab").write(b'\xff\n[1]\n{"cut by a full disk')
    note(tmp_path, says={"number": 2})
    (tmp_path / JOURNAL).open("a").write('{"says": {"num')
    assert journal.read() == [{"says": {"number": 1}}, {"says": {"number": 2}}]
    (tmp_path / JOURNAL).open("a").write('ber": 3}}\n')
    assert journal.newest("says") == {"number": 3}
    assert journal.read() == []


def test_the_contract_refers_to_the_table():
    assert "trainer/node/notes.py" in (HOME / "docs/develop/contract.md").read_text()
