"""Where a user's answers about folders are stored, which of them count, and who else owns a folder."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from deploy.job import allowed

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
ANOTHER = 1234


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home of this user, without any settings yet."""
    place = tmp_path / "home"
    place.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setattr(allowed.pwd, "getpwuid", lambda number: SimpleNamespace(pw_dir=str(place), pw_name="another"))
    return place


@pytest.fixture
def project(home):
    """The identity of a folder in that home."""
    (home / "project").mkdir()
    return allowed.identity_of(home / "project")


@pytest.mark.holds("answers-are-yours")
def test_an_answer_adds_to_earlier_answers_about_the_same_folder_alone(home, project):
    assert allowed.allowed_wishes(project) == frozenset()
    assert [allowed.save_answers(project, keys) for keys in (["image x"], ["mount y"])] == ["", ""]
    assert allowed.allowed_wishes(project) == {"image x", "mount y"}
    (home / "project").rename(home / "moved")
    assert allowed.allowed_wishes(allowed.identity_of(home / "moved")) == frozenset()


@pytest.mark.holds("answers-are-yours")
def test_answers_are_kept_in_a_home_that_is_itself_a_work_tree_but_not_in_another_work_tree(home, project, monkeypatch):
    """Some users keep the settings in their home with git."""
    (home / ".git").mkdir()
    assert allowed.save_answers(project, ["image x"]) == ""
    (home / "project/.git").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "project/config"))
    assert allowed.save_answers(project, ["image x"]).endswith("is in the folder that asks")
    assert not (home / "project/config").exists()


@pytest.mark.parametrize("setting", ["config", "./config"])
def test_a_relative_configuration_folder_is_ignored_because_a_cloned_folder_could_have_it(home, setting, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", setting)
    assert allowed.file_of(allowed.identity_of(home)).is_relative_to(home / ".config/muster/allowed")


def test_a_user_learns_which_path_keeps_an_answer_from_being_stored(home, project):
    (home / ".config").write_text("a file")
    assert allowed.save_answers(project, ["image x"]) == f"{home}/.config/muster/allowed: Not a directory"


def test_a_full_disk_leaves_no_half_of_an_answer(home, project, monkeypatch):
    assert allowed.save_answers(project, ["image x"]) == ""
    kept = list((home / ".config/muster/allowed").iterdir())

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(allowed.os, "replace", full)
    assert "No space left on device" in allowed.save_answers(project, ["mount y"])
    assert list((home / ".config/muster/allowed").iterdir()) == kept
    assert allowed.allowed_wishes(project) == {"image x"}


@pytest.mark.holds("others-folder")
@pytest.mark.parametrize(("own", "by_sudo", "users"), [(0, "1234", {0, 1234}), (7, "1234", {7}), (0, "x1", {0})])
def test_the_user_who_called_sudo_counts_only_for_root(home, own, by_sudo, users, monkeypatch):
    """With `sudo -u another`, the caller's folder is not the other user's own."""
    monkeypatch.setattr(allowed.os, "geteuid", lambda: own)
    monkeypatch.setenv("SUDO_UID", by_sudo)
    assert allowed.own_users() == users


@needs_root
def test_root_leaves_no_folder_in_the_home_of_another_user(home, project):
    """The user could not write there later."""
    os.chown(home, ANOTHER, ANOTHER)
    assert allowed.save_answers(project, ["image x"]) == f"{home}: it belongs to another user"
    assert not (home / ".config").exists()
    (home / ".config/muster").mkdir(parents=True)
    assert allowed.save_answers(project, ["image x"]) == "", "what root made there already is used"


@needs_root
@pytest.mark.holds("others-folder")
def test_the_owner_of_folders_above_a_work_tree_does_not_count(home, project):
    """All homes are below folders of root."""
    os.chown(home, ANOTHER, ANOTHER)
    assert allowed.other_owner(home / "project") == ""
    (home / ".git").mkdir()
    assert allowed.other_owner(home / "project") == "another", "now it is in a work tree of that user"


@needs_root
@pytest.mark.holds("others-folder")
@pytest.mark.parametrize("whose", ["link", "target"])
def test_the_owner_of_a_link_and_of_its_target_both_count(home, project, whose):
    target, link = home / "lab.toml", home / "project/cluster.toml"
    target.write_text("")
    link.symlink_to(target)
    assert allowed.other_owner(home / "project", link) == ""
    os.chown(link if whose == "link" else target, ANOTHER, ANOTHER, follow_symlinks=False)
    assert allowed.other_owner(home / "project", link) == "another"
