"""A manifest is accepted as a whole or refused: a matching checksum proves nothing about the types of its fields."""

import hashlib
import json

import pytest

from muster.checkpoint.manifest import File, Manifest, manifest_or_none, parse_manifest, read_manifest
from muster.errors import CheckpointError, NewerFormat

ONE = Manifest(7, 1.5, 0.5, {"state.pt": File("ab", 3)}, {"run": "größer"})
PARTS = {"shard-0.pt": File("ab", 3, "gpu-a"), "shard-1.pt": File("cd", 4, "gpu-b")}
TWO = Manifest(0, 1, None, PARTS, {})


def written(folder, facts):
    """Write these facts as a manifest into this folder, with a matching checksum."""
    facts = {name: value for name, value in facts.items() if name != "check"}
    facts["check"] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


@pytest.mark.parametrize(("manifest", "number", "size"), [(ONE, 1, 3), (TWO, 2, 7)])
def test_a_written_manifest_reads_back_unchanged(tmp_path, manifest, number, size):
    (tmp_path / "manifest.json").write_text(manifest.render())
    assert read_manifest(tmp_path) == manifest == parse_manifest(manifest.render())
    assert (json.loads(manifest.render())["format"], manifest.bytes) == (number, size)
    assert ("host" in manifest.render()) == manifest.sharded == (number == 2)
    assert "größer" not in manifest.render(), "any tool reads it"


@pytest.mark.parametrize(
    "odd",
    [
        *({"step": each} for each in (-1, 1.0, True, "7", None, 1 << 63)),
        *({"created": each} for each in ("now", None, True, [])),
        *({"metric": each} for each in ("0.5", True, [0.5])),
        *({"summary": each} for each in (None, [], "x")),
        *({"format": each} for each in (None, -1, "1", True, 1.0)),
        *({"files": each} for each in ({}, [], None, {"state.pt": None}, {"state.pt": {"sha256": "ab"}})),
        {"files": {"shard-1.pt": {"sha256": "ab", "bytes": 3, "host": "b"}}},
        {"files": {name: {"sha256": "ab", "bytes": 3} for name in ("state.pt", "shard-1.pt")}},
        *({"files": {name: {"sha256": "ab", "bytes": 3} for name in ("shard-0.pt", other)}} for other in (
            "", ".", "..", "a/b", "/etc/passwd", "../a",
        )),
        *({"files": {"state.pt": {"sha256": "ab", "bytes": 3, **more}}} for more in (
            {"sha256": 5}, {"sha256": None}, {"bytes": -1}, {"bytes": "3"}, {"bytes": True}, {"host": 5},
            {"host": None}, {"more": 1},
        )),
    ],
    ids=repr,
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_refused_though_the_checksum_matches(tmp_path, odd):
    folder = written(tmp_path, {**json.loads(ONE.render()), **odd})
    with pytest.raises(CheckpointError, match="damaged, or another trainer wrote it"):
        read_manifest(folder)
    assert manifest_or_none(folder) is None


def test_a_manifest_changed_after_writing_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text(ONE.render().replace('"step": 7', '"step": 8'))
    with pytest.raises(CheckpointError, match="was altered: its checksum does not match"):
        read_manifest(tmp_path)


def test_a_manifest_of_a_newer_muster_is_refused_as_newer(tmp_path):
    with pytest.raises(NewerFormat, match="format 3: a newer Muster wrote it, and this one only reads formats up to 2"):
        read_manifest(written(tmp_path, {**json.loads(ONE.render()), "format": 3}))


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\x00", "[" * 60 + "]" * 60])
def test_text_that_is_no_manifest_is_refused_with_a_message(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged, or another trainer wrote it"):
        read_manifest(tmp_path)


def test_a_missing_manifest_a_plain_file_and_a_missing_path_are_told_apart(tmp_path):
    (tmp_path / "model.pt").touch()
    (tmp_path / "manifest.json").mkdir()
    (tmp_path / "empty").mkdir()
    for path, words in (
        (tmp_path, "cannot be read"),
        (tmp_path / "empty", "no manifest.json in it"),
        (tmp_path / "model.pt", "a plain file, not a checkpoint"),
        (tmp_path / "gone", "no such file or folder"),
    ):
        with pytest.raises(CheckpointError, match=words) as refused:
            read_manifest(path)
        assert "step-XXXXXXXX folder" in refused.value.hint
