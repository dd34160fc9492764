"""What hosts have proved about images is remembered from one push to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.run.files.folders import cache_folder
from deploy.send.image.push import Proofs
from deploy.send.road.rates import Rates


def test_a_proof_is_known_to_the_next_push_but_only_for_that_host_and_image(tmp_path: Path) -> None:
    Proofs(tmp_path / "muster").note("a", "sha256:1", proved=True)
    later = Proofs(tmp_path / "muster")
    assert later.has("a", "sha256:1")
    assert not later.has("b", "sha256:1")
    assert not later.has("a", "sha256:2")


def test_an_image_that_is_sent_again_must_be_proved_again(tmp_path: Path) -> None:
    proofs = Proofs(tmp_path)
    proofs.note("a", "sha256:1", proved=True)
    proofs.note("b", "sha256:1", proved=True)
    proofs.note("a", "sha256:1", proved=False)
    assert not Proofs(tmp_path).has("a", "sha256:1")
    assert Proofs(tmp_path).has("b", "sha256:1")


def test_two_pushes_at_once_keep_the_proofs_of_both(tmp_path: Path) -> None:
    one, other = Proofs(tmp_path), Proofs(tmp_path)
    one.note("a", "sha256:1", proved=True)
    other.note("b", "sha256:1", proved=True)
    assert Proofs(tmp_path).has("a", "sha256:1")


def test_without_a_readable_or_writable_file_every_host_proves_again(tmp_path: Path) -> None:
    (tmp_path / "proved").mkdir()
    proofs = Proofs(tmp_path)
    proofs.note("a", "sha256:1", proved=True)
    assert not Proofs(tmp_path).has("a", "sha256:1")
    assert [path.name for path in tmp_path.iterdir()] == ["proved"]


def test_the_oldest_proofs_are_removed_first(tmp_path: Path) -> None:
    (tmp_path / "proved").write_text("\n".join(f"host{number} sha256:1" for number in range(1000)))
    Proofs(tmp_path).note("new", "sha256:1", proved=True)
    assert not Proofs(tmp_path).has("host0", "sha256:1")
    assert Proofs(tmp_path).has("host1", "sha256:1")
    assert Proofs(tmp_path).has("new", "sha256:1")


def test_a_cache_folder_that_is_a_link_to_another_disk_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "muster").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Proofs(cache_folder()).note("a", "sha256:1", proved=True)
    Rates(cache_folder()).save()
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["proved", "rates"]
    assert Proofs(cache_folder()).has("a", "sha256:1")
