"""Which files of a folder are sent: those that git tracks or would add, with and without git installed."""

from __future__ import annotations

import os
import subprocess

import pytest

from deploy.core.errors import UsageError
from deploy.send.folder import folder_look
from deploy.send.folder.credentials import NO_CHOICE, SendChoice
from deploy.send.folder.selection import select


def sent_paths(folder, choice=NO_CHOICE):
    return {entry.path for entry in folder_look.look_at(folder, choice).entries if not entry.isdir()}


FILES = {
    ".gitignore": "*.ckpt\ndata/\n!keep.ckpt\n/only_top\nbuild/*\n!build/keep.txt\n# no rule\nlog\\ 1.txt\nmit ö\n",
    "sub/.gitignore": "!special.ckpt\nlocal.txt\nonly_top/\n",
    "train.py": "",
    "a.ckpt": "",
    "keep.ckpt": "",
    "sub/special.ckpt": "",
    "sub/b.ckpt": "",
    "sub/local.txt": "",
    "sub/deep/local.txt": "",
    "sub/only_top/x": "",
    "sub/deeper/only_top": "",
    "only_top": "",
    "data/one.bin": "",
    "sub/data/two.bin": "",
    "build/out.o": "",
    "build/keep.txt": "",
    "log 1.txt": "",
    "log 2.txt": "",
    "mit ö": "",
    "line\nbreak.py": "",
    " blank first.py": "",
    "excluded.txt": "",
    "__pycache__/train.pyc": "",
    ".venv/lib/x.py": "",
    "runs/old/log": "",
}
SENT = {
    *(".gitignore", "sub/.gitignore", "train.py", "keep.ckpt", "sub/special.ckpt", "build/keep.txt", "log 2.txt"),
    *("line\nbreak.py", " blank first.py", "sub/deeper/only_top"),
}


@pytest.fixture
def folder(tmp_path):
    """A folder with nested rules that is a repository whose info/exclude excludes one more file."""
    home = tmp_path / "code"
    for path, text in FILES.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    repository(home)
    (home / ".git/info/exclude").write_text("excluded.txt\n")
    return home


def repository(folder):
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)


def commit(folder, *paths):
    subprocess.run(["git", "-C", str(folder), "add", "--force", "--", *paths], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, "commit", "--quiet", "--message", "x"], check=True)


def without_git(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")


def files(folder, include=()):
    return {path for path in select(folder, include).paths if not (folder / path).is_dir()}


def test_a_folder_whose_name_begins_with_a_dot_has_the_rules_around_it(tmp_path):
    home = tmp_path / "code"
    repository(home)
    for path in (".exp/train.py", ".exp/big.bin", "exp/train.py"):
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_text("")
    (home / ".gitignore").write_text("/.exp/big.bin\n/exp/train.py\n")
    assert sent_paths(home / ".exp") == {"train.py"}


def test_the_rules_of_nested_gitignore_files_hold_with_git_and_without(folder, monkeypatch):
    assert files(folder) == SENT
    without_git(monkeypatch)
    assert files(folder) == SENT


def test_a_folder_inside_a_repository_obeys_the_rules_above_it(folder, monkeypatch):
    below = {".gitignore", "special.ckpt", "deeper/only_top"}
    assert files(folder / "sub") == below
    without_git(monkeypatch)
    assert files(folder / "sub") == below


def test_rules_apply_in_a_folder_that_is_not_a_repository(folder):
    (folder / ".git").rename(folder.parent / "elsewhere")
    assert files(folder) == {*SENT, "excluded.txt"}


def test_a_tracked_file_is_sent_even_if_a_rule_names_it_unless_it_was_deleted(folder):
    commit(folder, "a.ckpt", "runs/old/log", "train.py", "keep.ckpt")
    (folder / "keep.ckpt").unlink()
    assert {"a.ckpt", "runs/old/log"} <= files(folder)
    assert "keep.ckpt" not in sent_paths(folder)


def test_if_there_is_a_dockerignore_it_alone_decides(folder):
    (folder / ".dockerignore").write_text("*\n!train.py\n!data\n")
    assert {"train.py", "data/one.bin"} <= files(folder) <= {"train.py", "data/one.bin", ".dockerignore"}


def test_files_that_a_rule_excludes_are_named_once_and_can_be_included(folder):
    note = select(folder).notes[0]
    assert ".gitignore" in note
    assert "data/" in note or "data" in note
    assert "__pycache__" not in note
    assert {"data/one.bin", "a.ckpt"} <= files(folder, ["data", "a.ckpt"])
    assert "data" in "".join(select(folder, ["a.ckpt"]).notes)
    assert "data" not in "".join(select(folder, ["a.ckpt", "data/one.bin"]).notes)
    (folder / "sets").mkdir()
    (folder / "sets/read.py").write_text("pass")
    (folder / "sets/train.npy").write_bytes(b"1")
    (folder / ".gitignore").write_text((folder / ".gitignore").read_text() + "*.npy\n")
    assert "sets/train.npy" in select(folder, ["a.ckpt"]).ignored
    for asked in ("sets", "sets/"):
        assert "sets/train.npy" not in select(folder, [asked]).ignored, "its folder was asked for, and is sent"
    assert "a.ckpt" in sent_paths(folder, SendChoice(frozenset({"a.ckpt"})))


def test_a_folder_that_hides_itself_by_its_own_rule_is_not_named(folder):
    """A cache does this, and so does a runs folder from the time when the current folder was `below`."""
    for path in ("below/runs/.gitignore", "below/runs/1/log", "out/.gitignore", "out/big"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("*\n!.gitignore\n" if path == "out/.gitignore" else "*\n")
    named = select(folder).ignored
    assert "out/big" in named
    assert not [path for path in named if path.startswith("below")]


def test_a_script_that_a_rule_excludes_is_refused_with_the_option_that_sends_it(folder):
    (folder / ".gitignore").write_text("train.py\n")
    with pytest.raises(UsageError, match=r"train\.py.*\.gitignore") as refused:
        folder_look.refuse_unsent(folder_look.look_at(folder), folder, "train.py")
    assert refused.value.hint == "--include train.py"


@pytest.mark.parametrize(
    ("path", "why"),
    [("tools/train.py", "tools is a virtual environment"), (".venv/train.py", "a folder of this name usually holds")],
)
def test_a_script_that_no_rule_excludes_is_refused_with_the_reason(folder, path, why):
    """Once, the reason was a .dockerignore, which did not exist."""
    (folder / "tools").mkdir()
    (folder / path).write_text("")
    (folder / "tools/pyvenv.cfg").write_text("")
    (folder / ".gitignore").write_text("*.log\n")
    with pytest.raises(UsageError, match=f"{path}: Muster does not send it: {why}") as refused:
        folder_look.refuse_unsent(folder_look.look_at(folder), folder, path)
    assert refused.value.hint == f"--include {path}"
    folder_look.refuse_unsent(folder_look.look_at(folder, SendChoice(include=frozenset([path]))), folder, path)


def test_a_script_typed_through_a_link_is_found_among_the_sent_files(folder):
    (folder / "sets").mkdir()
    (folder / "sets/train.py").write_text("")
    (folder / "now").symlink_to("sets")
    look = folder_look.look_at(folder)
    for typed in ("now/train.py", "sets/../sets/train.py", f"../{folder.name}/sets/train.py"):
        folder_look.refuse_unsent(look, folder, typed)
    (folder / ".gitignore").write_text("/sets/train.py\n")
    with pytest.raises(UsageError, match=r"^sets/train.py: Muster does not send it"):
        folder_look.refuse_unsent(folder_look.look_at(folder), folder, "now/train.py")


@pytest.mark.parametrize("kept", ["train.py", "src/train.py"])
def test_a_script_that_is_a_link_is_sent_with_its_target_or_refused(folder, kept):
    (folder / "src").mkdir()
    (folder / "train.py").rename(folder / "src/train.py")
    (folder / "train.py").symlink_to("src/train.py")
    folder_look.refuse_unsent(folder_look.look_at(folder), folder, "train.py")
    (folder / ".dockerignore").write_text(f"{kept}\n")
    with pytest.raises(UsageError, match=rf"^{kept}: Muster does not send it"):
        folder_look.refuse_unsent(folder_look.look_at(folder), folder, "train.py")


def test_a_script_that_is_a_link_out_of_the_folder_is_refused_unless_the_hosts_get_its_place(folder, tmp_path):
    """Once, the run started, and then each host said that there is no such script."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/far.py").write_text("")
    (folder / "far.py").symlink_to(tmp_path / "shared/far.py")
    place = tmp_path / "shared"
    with pytest.raises(UsageError, match=r"far\.py: the ranks would not have it") as refused:
        folder_look.refuse_linked(folder, "far.py", ())
    assert f"--data {place}:{place}" in refused.value.hint
    folder_look.refuse_linked(folder, "far.py", (str(place),))
    # With local processes, the copy of the link leads to the same file.
    folder_look.refuse_unsent(folder_look.look_at(folder), folder, "far.py")


def test_a_folder_that_its_repository_ignores_is_sent_by_its_own_rules(tmp_path):
    repository(tmp_path)
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("")
    assert "train.py" in files(tmp_path / "code")


def test_submodules_are_sent_with_their_own_rules_and_an_empty_one_is_named(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    repository(other)
    (other / "lib.py").write_text("")
    commit(other, "lib.py")
    for name in ("third", "hollow one"):
        add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), name]
        subprocess.run(["git", "-C", str(folder), *add], check=True)
    commit(folder, ".gitmodules", "third", "hollow one")
    subprocess.run(["git", "-C", str(folder), "submodule", "--quiet", "deinit", "--force", "hollow one"], check=True)
    (folder / "third/.gitignore").write_text("*.tmp\n")
    (folder / "third/x.tmp").write_text("")
    chosen = select(folder)
    assert {"third/lib.py", "third/.gitignore"} <= set(chosen.paths)
    assert "third/x.tmp" not in chosen.paths
    assert any("submodule update --init 'hollow one'" in note for note in chosen.notes)


def test_a_shallow_clone_is_sent_like_a_full_one(folder, tmp_path):
    commit(folder, "train.py", ".gitignore")
    clone = tmp_path / "clone"
    command = ["git", "clone", "--quiet", "--depth", "1", f"file://{folder}", str(clone)]
    subprocess.run(command, check=True)
    (clone / "new.py").write_text("")
    (clone / "x.ckpt").write_text("")
    assert files(clone) == {"train.py", ".gitignore", "new.py"}


def test_link_loops_end_and_a_pipe_is_named(folder, monkeypatch):
    (folder / "loop").symlink_to(".")
    (folder / "sub/up").symlink_to("..")
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "queue")
    for look in (None, without_git):
        if look:
            look(monkeypatch)
        assert {"loop", "sub/up", "self"} <= sent_paths(folder)
        assert not {path for path in sent_paths(folder) if path.startswith(("loop/", "sub/up/"))}
        odd = [note for note in folder_look.look_at(folder).notes if "pipe" in note]
        assert len(odd) <= 1
    assert any("queue" in note for note in folder_look.look_at(folder).notes)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A temporary home folder for git's settings."""
    home = tmp_path / "home"
    (home / "config/git").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


def test_the_users_own_git_rules_apply_in_every_repository(folder, own):
    assert "log 2.txt" in files(folder)
    (own / "config/git/ignore").write_text("log*\n")
    assert "log 2.txt" not in files(folder)
    (own / "rules").write_text("train.py\n")
    (own / "link").symlink_to(own / "rules")
    (own / ".gitconfig").write_text("[core]\n\texcludesFile = ~/link\n")
    assert "train.py" not in files(folder)
    assert "log 2.txt" in files(folder)


def test_a_rules_file_that_the_repositorys_settings_name_is_ignored(folder, own):
    (own / "rules").write_text("train.py\n")
    subprocess.run(["git", "-C", str(folder), "config", "core.excludesFile", str(own / "rules")], check=True)
    assert "train.py" in files(folder)


def test_a_linked_worktree_is_sent_like_a_repository(folder, tmp_path):
    commit(folder, "train.py", "a.ckpt")
    subprocess.run(["git", "-C", str(folder), "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    assert files(tmp_path / "tree") == {"train.py", "a.ckpt"}
    assert not select(tmp_path / "tree").notes


def test_a_path_through_a_link_cannot_be_included(folder, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private/id").write_text("secret")
    (folder / "data/link").symlink_to(tmp_path / "private")
    (folder / "here").symlink_to("sub")
    for asked, told in (("data/link/id", "through a link"), ("here/local.txt", "--include sub/local.txt")):
        with pytest.raises(UsageError) as refused:
            files(folder, [asked])
        assert told in f"{refused.value.message} {refused.value.hint}"
    for asked in ("../private/id", str(tmp_path / "private/id"), "sub/../../private/id"):
        with pytest.raises(UsageError, match="outside"):
            files(folder, [asked])
    assert "data/link" in select(folder, ["data"]).paths, "a link itself is sent, without what it leads to"
    assert "data/link/id" not in select(folder, ["data"]).paths


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_another_users_repository_is_not_read_and_this_is_reported(folder, own):
    commit(folder, "a.ckpt")
    subprocess.run(["chown", "-R", "4711", str(folder)], check=True)
    chosen = select(folder)
    assert "a.ckpt" not in chosen.paths
    assert any("another user owns it" in note for note in chosen.notes)
    (own / ".gitconfig").write_text(f"[safe]\n\tdirectory = {folder}\n")
    assert "a.ckpt" in select(folder).paths


@pytest.mark.parametrize("kind", ["--index-version=2", "--index-version=3", "--index-version=4", "--split-index"])
def test_every_kind_of_git_index_is_read(folder, kind):
    commit(folder, "runs/old/log", "a.ckpt", "sub/b.ckpt")
    subprocess.run(["git", "-C", str(folder), "update-index", kind], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "-fN", "data/one.bin"], check=True)
    (folder / ".git/sharedindex.X").touch()  # not one of git's
    assert {"runs/old/log", "a.ckpt", "sub/b.ckpt", "data/one.bin"} <= files(folder)
