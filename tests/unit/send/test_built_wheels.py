"""The wheel of a build is remade: the result is a plain archive with a correct record, or nothing."""

from __future__ import annotations

import ast
import csv
import io
import os
import stat
import struct
import sys
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from deploy.send.packages import commands
from deploy.send.packages.inside import install
from deploy.send.packages.inside import wheel as wheels
from deploy.send.packages.inside.tools import Stop
from deploy.send.packages.inside.wheel import Editable, remake, same_version
from lab import waiting

NAME = "odd-1.0-py3-none-any.whl"
INFO = "odd-1.0.dist-info"
PLAIN = {
    "odd/__init__.py": b"VALUE = 1\n",
    f"{INFO}/METADATA": b"Name: Odd\nVersion: 1.0\nRequires-Dist: tqdm>4\nProvides-Extra: x\n\nRequires-Dist: no\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": b"",
}


def made(folder, files=(), name=NAME, **more):
    """A wheel as a build might leave it. `files`: entries (ZipInfo or path, content) in addition to the plain ones."""
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in [*{**PLAIN, **more}.items(), *files]:
            if content is not None:
                archive.writestr(entry, content)
    return path


def link(path, target):
    entry = zipfile.ZipInfo(path)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry, target


@pytest.mark.holds("built-made-anew")
def test_a_remade_wheel_reports_what_it_is_and_has_a_correct_record(tmp_path):
    tool = zipfile.ZipInfo("odd-1.0.data/scripts/tool")
    tool.external_attr = (stat.S_IFREG | stat.S_ISUID | 0o777) << 16
    lies = b"../../../etc/passwd,,\n/etc/shadow,,\nodd/__init__.py,sha256=AAAA,3\n"
    said = remake(made(tmp_path, [(tool, "#!python\n")], **{f"{INFO}/RECORD": lies}), tmp_path / "out")
    assert (said.name, said.version, said.requires, said.extras) == ("Odd", "1.0", ["tqdm>4"], ["x"])
    (path,) = (tmp_path / "out").glob("*/*")
    assert (path.name, path.parent.name) == (said.wheel, said.sha256)
    with zipfile.ZipFile(path) as archive:
        rows = list(csv.reader(io.TextIOWrapper(archive.open(f"{INFO}/RECORD"))))
        assert {row[0] for row in rows} == set(archive.namelist())
        assert all(
            row[1].startswith("sha256=") and int(row[2]) == archive.getinfo(row[0]).file_size for row in rows[:-1]
        )
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert oct(modes["odd-1.0.data/scripts/tool"]) == oct(stat.S_IFREG | 0o755)
    assert said == remake(made(tmp_path, [(tool, "#!python\n")]), tmp_path / "out"), "the same files are the same wheel"


@pytest.mark.holds("built-made-anew")
@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "odd/../../x",
        "/etc/x",
        "a//b",
        "./x",
        "C:x",
        "a\\b",
        "a\nb",
        "x" * 2000,
        "torch-9.dist-info/METADATA",
        "torch-9.data/data/x",
    ],
)
def test_a_file_outside_of_a_wheel_is_refused(tmp_path, path):
    with pytest.raises(Stop, match="wheel"):
        remake(made(tmp_path, [(path, "x")]), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*/*"))


@pytest.mark.long
@pytest.mark.holds("built-made-anew")
def test_a_wheel_that_different_readers_could_read_differently_is_refused(tmp_path, monkeypatch):
    def refused(path):
        with pytest.raises(Stop):
            remake(path, tmp_path / "out")
        assert not list((tmp_path / "out").glob("*/*"))

    refused(made(tmp_path, [link("odd/link", "/etc/passwd")]))
    with pytest.warns(UserWarning, match="Duplicate name"):
        refused(made(tmp_path, [("odd/__init__.py", "another")]))  # one name, two contents
    refused(made(tmp_path, **{f"{INFO}/METADATA": b"Name: torch\nVersion: 1.0\n"}))
    refused(made(tmp_path, **{f"{INFO}/METADATA": b"Name: odd\nVersion: 2.0\n"}))
    refused(made(tmp_path, **{f"{INFO}/METADATA": None}))
    refused(made(tmp_path, **{f"{INFO}/METADATA": b"Name: odd\nVersion: 1.0\n" + b"Requires-Dist: x\n" * 3000}))
    refused(made(tmp_path, name="odd-1.0.whl"))
    refused(made(tmp_path, name="-r-1.0-py3-none-any.whl"))
    (tmp_path / NAME).write_bytes(b"PK\5\6 no archive")
    refused(tmp_path / NAME)
    refused(made(tmp_path, [(f"odd/{n}.py", "") for n in range(wheels._MOST_FILES)]))
    lies = bytearray(made(tmp_path, [("odd/z", bytes(1 << 20))]).read_bytes())
    at = lies.rindex(b"odd/z") - 46  # its entry in the archive's directory: almost 4 GiB, then too little
    for size in (0xFFFFFFF0, 10):
        lies[at + 24 : at + 28] = struct.pack("<L", size)
        (tmp_path / NAME).write_bytes(lies)
        refused(tmp_path / NAME)
    monkeypatch.setattr(wheels, "_MOST_UNPACKED", 1 << 20)
    refused(made(tmp_path, [("odd/zeros", bytes(2 << 20))]))
    monkeypatch.setattr(wheels, "_MOST_PACKED", 100)
    refused(made(tmp_path))


@pytest.mark.holds("built-made-anew")
def test_only_a_plain_file_is_read(tmp_path):
    for make in (lambda path: path.symlink_to("/etc/passwd"), lambda path: os.mkfifo(path), lambda path: path.mkdir()):
        path = tmp_path / NAME
        make(path)
        with pytest.raises(Stop):
            remake(path, tmp_path / "out")
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_wheel_without_code_is_reported_as_empty(tmp_path):
    """`pip install .` builds such a wheel from a setup.py that names no packages."""
    assert remake(made(tmp_path, **{"odd/__init__.py": None}), tmp_path / "out").empty
    assert not remake(made(tmp_path), tmp_path / "out").empty
    assert not remake(
        made(tmp_path, [("odd-1.0.data/purelib/odd.py", "")], **{"odd/__init__.py": None}), tmp_path / "out"
    ).empty


def test_an_editable_package_becomes_a_pth_file_that_names_its_folder(tmp_path):
    (tmp_path / "code" / "odd").mkdir(parents=True)
    said = remake(made(tmp_path), tmp_path / "out", Editable(tmp_path / "code", "libs/x"))
    with zipfile.ZipFile(tmp_path / "out" / said.sha256 / said.wheel) as archive:
        assert "odd/__init__.py" not in archive.namelist()
        assert b"work/libs/x" in archive.read("_muster_editable_odd.pth")
    with pytest.raises(Stop, match="write it without -e"):
        remake(made(tmp_path, [("made_by_the_build.py", "")]), tmp_path / "out", Editable(tmp_path / "code", "libs/x"))


@pytest.mark.parametrize(("says", "found"), [("odd\n", True), ("\n", True), ("../code\n", True), ("absent\n", False)])
def test_an_editable_package_without_code_in_its_wheel_is_found_by_top_level_txt(tmp_path, says, found):
    """As with `py_modules=["odd"]` for a folder odd: `pip install -e .` uses top_level.txt, which may be empty."""
    (tmp_path / "code" / "odd").mkdir(parents=True)
    whole = made(tmp_path, **{"odd/__init__.py": None, f"{INFO}/top_level.txt": says})
    with nullcontext() if found else pytest.raises(Stop, match="write it without -e"):
        said = remake(whole, tmp_path / "out", Editable(tmp_path / "code", "."))
        with zipfile.ZipFile(tmp_path / "out" / said.sha256 / said.wheel) as archive:
            assert b"'work'" in archive.read("_muster_editable_odd.pth")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.0", "1.0.0", True), ("1.0-rc1", "1.0rc1", True), ("1.0alpha2", "1.0a2", True), ("v1.0", "1.0", True),
        ("1.0+cu12.1", "1.0+cu12_1", True), ("1.0-dev3", "1.0.dev3", True), ("1.0.post1", "1.0-post1", True),
        ("1.0", "1.1", False), ("1.0", "1.0rc1", False), ("1.0", "10", False), ("1.0+a", "1.0", False),
        ("1.10", "1.1", False),
    ],
)  # fmt: skip
def test_versions_are_compared_as_indexes_do(one, other, same):
    assert same_version(one, other) is same


def test_only_plain_python_scripts_of_the_bases_commands_are_adopted(tmp_path, monkeypatch):
    """On many systems only root may read sudo, and a large binary may follow a first line that names Python."""
    folder = tmp_path / "base"
    folder.mkdir()
    for name, rest in {"torchrun": "x = 1\n", "sudo": "", "zipped": "y" * (2 << 20), "python3": "", "tool": ""}.items():
        (folder / name).write_text(f"#!{'/bin/sh' if name == 'tool' else '/usr/bin/env python3'}\n{rest}")
    (tmp_path / "made/bin").mkdir(parents=True)
    real = Path.open

    def closed(path, *words, **more):
        if path.name == "sudo":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **more)

    monkeypatch.setattr(Path, "open", closed)
    monkeypatch.setattr(sys, "executable", str(folder / "python3"))
    install._adopt_scripts(tmp_path / "made")
    assert [path.name for path in (tmp_path / "made/bin").iterdir()] == ["torchrun"]
    assert (tmp_path / "made/bin/torchrun").read_text() == f"#!{tmp_path}/made/bin/python\nx = 1\n"


def test_the_modules_that_hosts_get_as_one_text_define_no_name_twice():
    """They become one module: a second definition of a name would silently replace the first one."""
    program = zlib.decompress(commands.program()).decode()
    names = [
        target.id if isinstance(target, ast.Name) else getattr(target, "name", "")
        for node in ast.parse(program).body
        for whole in (node.targets if isinstance(node, ast.Assign) else [node])
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
    ]
    named = [name for name in names if name]
    assert sorted(set(named)) == sorted(named)
    assert "from ." not in program
    assert "def wipe" in program


@pytest.mark.holds("built-made-anew")
@pytest.mark.parametrize(("odd", "said"), [
    ({"odd/zeros": b"\0" * (80 << 20)}, "unpacks to more than"),
    ({f"{INFO}/METADATA": b"A:\n" * 1_000_000 + PLAIN[f"{INFO}/METADATA"]}, "lines"),
    ({f"{INFO}/METADATA": PLAIN[f"{INFO}/METADATA"].replace(b"1.0", b"1" + b".0" * 100_000 + b"!")}, "calls itself"),
], ids=["zeros", "lines", "version"])  # fmt: skip
def test_a_small_wheel_costs_little(tmp_path, odd, said):
    wheel = made(tmp_path, **odd)
    with waiting.spending_little(), pytest.raises(Stop, match=said):
        remake(wheel, tmp_path / "out")


@pytest.mark.holds("built-made-anew")
def test_an_archive_that_understates_its_number_of_files_is_refused(tmp_path):
    row = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    rows, path = row * 340_000, tmp_path / NAME
    path.write_bytes(rows + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 5, 5, len(rows), 0, 0))
    with waiting.spending_little(), pytest.raises(Stop, match="50000 files"):
        remake(path, tmp_path / "out")
