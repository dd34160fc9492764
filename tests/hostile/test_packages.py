"""A package that an index swaps is not installed: everything `make up` and the images install is pinned by its hash.

The attack: an index that answers with other files under the right names and versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
LOCKS = ("control", "trainer", "dev", "bench", "uv")


@pytest.mark.holds("hashes")
@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_has_hashes(name):
    entries = re.split(r"^(?=[a-z])", (HOME / f"requirements/{name}.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) > (0 if name == "uv" else 5)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.holds("hashes")
def test_only_torch_is_installed_without_a_hash():
    rows = (HOME / "requirements/torch.txt").read_text().splitlines()
    assert [row.partition("==")[0] for row in rows if not row.startswith("#")] == ["torch"]
    makers = "".join((HOME / path).read_text() for path in ("Makefile", "images/install.sh"))
    installs = [line for line in makers.splitlines() if re.search(r"install .*-r ", line)]
    assert len(installs) == 6
    assert [line for line in installs if "--require-hashes" not in line] == []
    torch = (HOME / "requirements/torch.sh").read_text()
    assert "lock=$here/torch.txt\n" in torch
    installs = [line.rpartition("-r ")[2] for line in torch.splitlines() if re.search(r"install .*-r ", line)]
    assert {line.split()[0] for line in installs} == {'"$lock"', '"$here/uv.txt"'}
    assert [line for line in torch.splitlines() if "uv.txt" in line and "--require-hashes" not in line] == []


@pytest.mark.holds("hashes")
def test_a_swapped_package_is_refused(tmp_path):
    wheel = tmp_path / "idna-3.20-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("idna/__init__.py", "raise SystemExit('owned')")
        archive.writestr("idna-3.20.dist-info/METADATA", "Metadata-Version: 2.1\nName: idna\nVersion: 3.20\n")
        archive.writestr("idna-3.20.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("idna-3.20.dist-info/RECORD", "")
    lock = (HOME / "requirements/dev.txt").read_text()
    (tmp_path / "lock.txt").write_text(re.search(r"^idna==.*?(?=^[a-z])", lock, re.MULTILINE | re.DOTALL)[0])
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--no-deps", "--target", tmp_path / "installed"]
    options = ["--no-index", "--find-links", tmp_path, "--require-hashes", "-r", tmp_path / "lock.txt"]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "installed").exists()
