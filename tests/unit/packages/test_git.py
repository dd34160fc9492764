"""A source in a git repository is fetched here: the files of one revision, or git's own words."""

import io
import subprocess
import tarfile

import pytest

from deploy.core.errors import DeployError
from deploy.packages import git
from lab import index


@pytest.fixture
def repository(tmp_path):
    """Two commits; the first has the tag v1."""

    def run(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    run("init", "--quiet")
    for text in ("first", "second"):
        (tmp_path / "code.py").write_text(text)
        run("add", "code.py")
        run("commit", "--quiet", "--message", text)
        if text == "first":
            run("tag", "v1")
    return f"git+file://{tmp_path}", run("rev-parse", "--short", "HEAD~1").strip()


def content(word):
    with tarfile.open(fileobj=io.BytesIO(git.fetch(word))) as tar:
        return tar.extractfile("code.py").read().decode()


def test_a_tag_a_branch_a_short_commit_and_no_revision(repository):
    url, short = repository
    assert content(f"{url}@v1") == content(f"{url}@{short}") == "first"
    assert content(url) == content(f"{url}@main#egg=x") == "second"


@pytest.mark.parametrize("more", ["@nosuch", "-not-there", "@--upload-pack=touch%20x"])
def test_what_git_cannot_fetch_is_named(repository, more):
    with pytest.raises(DeployError, match=r"git\+file://"):
        git.fetch(repository[0] + more)


def commit(folder, text):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(text)
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x"), ("update-server-info",)):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return f"git+file://{folder}"


def test_sources_that_a_source_names_are_fetched_too_and_each_once(tmp_path):
    last = commit(tmp_path / "c", "dependencies = []\n")
    middle = commit(tmp_path / "b", f'dependencies = ["c @ {last}", "again @ {last}"]\n')
    first = commit(tmp_path / "a", f'dependencies = ["b@{middle}"]\n')
    told = []
    assert list(git.fetch_all([first, last], told.append)) == [first, last, middle]
    assert len(told) == 3


def test_a_source_from_elsewhere_names_no_repository_of_this_machine(tmp_path, monkeypatch):
    private = commit(tmp_path / "private", "secret\n")
    theirs = tmp_path / "theirs"
    commit(theirs, f'dependencies = ["x @ {private}"]\n')
    top = theirs / ".git"
    files = {f"/t.git/{path.relative_to(top)}": path.read_bytes() for path in top.rglob("*") if path.is_file()}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with index.serve("127.0.0.1", files) as url:
        word = f"git+{url.removesuffix('/simple')}/t.git"
        assert list(git.fetch_all([word], lambda words: None)) == [word]
