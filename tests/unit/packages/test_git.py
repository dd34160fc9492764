"""A source in a git repository is fetched here: the files of one revision, or git's own words."""

import io
import subprocess
import tarfile

import pytest

from deploy.core.errors import DeployError
from deploy.packages import git


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
