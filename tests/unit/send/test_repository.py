"""A folder's code as git has it: never a credential or an unsent file, and no error if git knows nothing."""

from __future__ import annotations

import os
import subprocess

import pytest

from deploy.run.files import code
from deploy.send.folder import repository
from deploy.send.folder.credentials import SendChoice
from lab import waiting

# These tests start other programs.
pytestmark = pytest.mark.long

KEY = "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n-----END PRIVATE KEY-----\n"
SECRET = "hunter2-hunter2"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A git repository with one commit."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a@b.test")
    files = {
        "train.py": "lr = 0.1\n",
        "other.py": "pass\n",
        "model.py": f"token = '{SECRET}'\n",
        "notes.txt": KEY,
        ".env": "PASSWORD=old\n",
        "data/big.bin": "not code\n",
        ".dockerignore": "data\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "work")
    git(tmp_path, "add", "--all", "--force")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_a_clean_folder_is_its_commit(folder):
    code = repository.look(folder)
    assert len(code.commit) == 40
    assert (code.branch, code.dirty, code.diff) == ("work", False, "")


@pytest.mark.holds("reader-budget")
def test_settings_of_many_empty_lines_are_read_at_once(folder):
    """An unpacked folder has its own .git/config. The time once grew with the square of their number."""
    with (folder / ".git/config").open("a") as file:
        file.write("\n" * 200_000 + "[core]\n\tFileMode = off\n")
    (folder / "train.py").chmod(0o755)
    with waiting.spending_little():
        assert not repository.look(folder).dirty


@pytest.mark.parametrize(
    ("settings", "dirty"),
    [
        ("[core] filemode = false\n", False),
        ("[core]filemode=0\n", False),
        ('[core]\nFileMode = "false" # a disk of Windows\n', False),
        ("[core]\nfilemode =\n", False),
        ("[core]\nfilemode = false\n[core]\nfilemode = true\n", True),
        ("[other]\nfilemode = false\n", True),
        ('[core "other"]\nfilemode = false\n', True),
        ('[core]\neditor = "\\\nfilemode = false"\n', True),
        ("[include]\npath = without_modes\n", True),
    ],
)
def test_settings_are_read_as_git_reads_them_without_the_files_that_they_name(folder, settings, dirty):
    (folder / ".git/without_modes").write_text("[core]\nfilemode = false\n")
    with (folder / ".git/config").open("a") as file:
        file.write(settings)
    (folder / "train.py").chmod(0o755)
    assert repository.look(folder).dirty == dirty


def test_the_diff_covers_only_the_files_that_are_sent(folder):
    (folder / "train.py").write_text("lr = 0.2\n")
    (folder / "data/big.bin").write_text("changed\n")
    (folder / "new.py").write_text("pass\n")
    (folder / ".netrc").write_text("password\n")
    code = repository.look(folder)
    assert code.dirty
    assert "-lr = 0.1\n+lr = 0.2" in code.diff
    assert "big.bin" not in code.diff
    assert code.new == ("new.py",)


@pytest.mark.holds("no-credential-in-the-diff")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "PASSWORD=new\n"),
        ("notes.txt", "the key is gone\n"),
        ("notes.txt", KEY.replace("AAAA", "BBBB")),
        ("model.py", "token = read()\n"),
        ("train.py", f"token = '{SECRET}'\n"),
    ],
)
def test_no_diff_has_a_credential_neither_the_old_nor_the_new_one(folder, name, text):
    (folder / name).write_text(text)
    code = repository.look(folder, SendChoice(values={"TOKEN": SECRET}))
    assert name in code.changed
    assert not any(secret in code.diff for secret in ("PASSWORD", "AAAA", "BBBB", SECRET))


def test_the_content_of_a_deleted_file_is_not_in_the_diff(folder):
    (folder / "notes.txt").unlink()
    (folder / ".env").unlink()
    code = repository.look(folder)
    assert set(code.changed) == {"notes.txt", ".env"}
    assert code.diff == ""


def test_a_subfolder_of_a_repository_is_described_by_itself(folder):
    (folder / "train.py").write_text("elsewhere\n")
    (folder / "part").mkdir()
    (folder / "part/a.py").write_text("pass\n")
    code = repository.look(folder / "part")
    assert (code.changed, code.new) == ((), ("a.py",))


def test_a_very_long_diff_is_cut(folder, monkeypatch):
    monkeypatch.setattr(repository, "MOST_DIFF", 100)
    (folder / "train.py").write_text("x = 1\n" * 100)
    code = repository.look(folder)
    assert code.cut
    assert len(code.diff) <= 100


def test_odd_file_names_and_git_settings_start_no_program(folder):
    marker = folder / "started"
    odd = os.fsdecode(b"odd\n\xff*.py")
    (folder / odd).write_text("1\n")
    (folder / "--output=x").write_text("1\n")
    git(folder, "add", "--all")
    for name in ("diff.external", "core.fsmonitor"):
        git(folder, "config", name, f"touch {marker}; true")
    (folder / "train.py").write_text("2\n")
    code = repository.look(folder)
    assert not marker.exists()
    assert "+2" in code.diff
    assert not (folder / "x").exists()
    code.diff.encode(errors="surrogateescape")


@pytest.mark.parametrize("kind", ["no repository", "no commit", "no git"])
def test_without_git_or_a_commit_nothing_is_known(tmp_path, monkeypatch, kind):
    (tmp_path / "train.py").write_text("")
    if kind == "no commit":
        git(tmp_path, "init", "-q")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if kind == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert repository.look(tmp_path) is None


def test_the_code_record_is_read_back_but_not_one_that_another_wrote(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "train.py").write_text("lr = 0.2\n")
    run_dir = tmp_path / "runs/r"
    run_dir.mkdir(parents=True)
    known = repository.look(folder)
    code.write(run_dir, known)
    assert code.read(run_dir) == known
    (run_dir / "code.diff").write_text("another\n")
    assert code.read(run_dir) is None
    code.write(run_dir, known)
    moved = run_dir.rename(tmp_path / "runs/other")
    assert code.read(moved) is None
    code.write(moved, None)
    assert not (moved / "code.json").exists()


def as_git_has_it(folder):
    command = ["git", "-C", str(folder), "-c", "core.quotePath=false", "diff", "--name-only", "--no-renames", "HEAD"]
    return tuple(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())


def test_the_changed_files_are_those_that_git_reports(folder, tmp_path_factory):
    lib = tmp_path_factory.mktemp("lib")
    (lib / "lib.py").write_text("1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        git(lib, *words)
    for name in ("third", "clean"):
        git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), name)
    for name in ("a", "b", "c", "d", "link", "same", "lines"):
        (folder / name).write_text(f"{name}\n")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "-q", "-m", "more")
    assert repository.look(folder).changed == as_git_has_it(folder) == ()
    (folder / "a").chmod(0o755)
    (folder / "b").unlink()
    (folder / "link").unlink()
    (folder / "link").symlink_to("a")
    (folder / "staged").write_text("new\n")
    git(folder, "add", "staged")
    git(folder, "rm", "-q", "--cached", "c")
    os.utime(folder / "same", (1, 1))
    (folder / "d").write_text("other\n")
    (folder / "third/lib.py").write_text("2\n")
    assert repository.look(folder).changed == as_git_has_it(folder)
    assert {"a", "b", "c", "d", "link", "staged", "third"} == {*repository.look(folder).changed}


def test_the_diff_is_the_one_that_git_shows(folder):
    (folder / "train.py").write_text("lr = 0.2\nmore\n")
    (folder / "other.py").chmod(0o755)
    (folder / "dir").mkdir()
    (folder / "dir/new.py").write_text("no end of line")
    git(folder, "add", "dir/new.py")
    command = ["git", "-C", str(folder), "diff", "--no-color", "--no-renames", "HEAD"]
    expected = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert repository.look(folder).diff == expected


def test_line_endings_that_git_converts_are_no_change(folder):
    git(folder, "config", "core.autocrlf", "true")
    (folder / "train.py").write_bytes(b"lr = 0.1\r\n")
    assert repository.look(folder).changed == ()
