"""A git source is fetched on this machine: the files of one revision, or git's own error message.

What a server sends is untrusted: it must start nothing, and has limits.
"""

import io
import os
import subprocess
import tarfile
from contextlib import contextmanager

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages.from_source import git
from tests import certificate, index


def run(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serve repositories with TLS, by their names; the user's git trusts that server."""
    signed = certificate.make(tmp_path / "tls.pem")
    monkeypatch.setenv("GIT_SSL_CAINFO", str(signed))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    served: dict[str, bytes] = {}

    @contextmanager
    def serving(login=""):
        with index.serve("127.0.0.1", served, login, signed) as url:
            top = url.removesuffix("/simple")

            def add(folder, name):
                run(folder, "update-server-info")
                files = (path for path in (folder / ".git").rglob("*") if path.is_file())
                served.update(
                    {f"/{name}.git/{path.relative_to(folder / '.git').as_posix()}": path.read_bytes() for path in files}
                )
                return f"git+{top}/{name}.git"

            yield add

    return serving


@pytest.fixture
def repository(tmp_path):
    """A repository with two commits; the first has the tag v1."""
    folder = tmp_path / "code"
    folder.mkdir()
    run(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "code.py").write_text(text)
        run(folder, "add", "code.py")
        run(folder, "commit", "--quiet", "--message", text)
        if text == "first":
            run(folder, "tag", "v1")
    return folder


def content(word):
    with tarfile.open(fileobj=io.BytesIO(git.fetch(word))) as tar:
        return tar.extractfile("code.py").read().decode()


def test_a_tag_a_branch_a_short_commit_or_the_default_is_fetched(repository, serve):
    short = run(repository, "rev-parse", "--short", "HEAD~1").strip()
    with serve() as add:
        url = add(repository, "r")
        assert content(f"{url}@v1") == content(f"{url}@{short}") == "first"
        assert content(url) == content(f"{url}@main#egg=x") == "second"


@pytest.mark.parametrize("more", ["@nosuch", "-not-there", "@--upload-pack=touch%20x", "@$(touch x)"])
def test_a_source_that_git_cannot_fetch_is_named(repository, serve, more):
    with serve() as add:
        url = add(repository, "r")
        with pytest.raises(DeployError, match=r"git\+https://"):
            git.fetch(url + more)


@pytest.mark.parametrize("named", ["core.sshCommand", "GIT_SSH"])
def test_git_uses_the_users_own_ssh_and_its_error_is_shown(tmp_path, monkeypatch, named):
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\necho 'git@example.org: Permission denied (publickey).' >&2\nexit 255\n")
    own.chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    if named == "GIT_SSH":
        monkeypatch.setenv(named, str(own))
    else:
        (tmp_path / "gitconfig").write_text(f"[core]\n\tsshCommand = {own} -i key\n")
    with pytest.raises(DeployError, match=r"git cannot fetch it on this machine: .*Permission denied \(publickey\)"):
        git.fetch("git+ssh://git@example.org/a/b@main")


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("address", ["git+file://{}", "git+{}", "git+http://127.0.0.1:9/x", "git+ext::sh -c true"])
def test_git_reaches_only_https_and_ssh_servers(repository, monkeypatch, address):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file:ext:http")
    with pytest.raises(DeployError):
        git.fetch(address.format(repository))


def test_a_server_cannot_redirect_git_to_a_repository_on_this_machine(repository, serve, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    run(other, "init", "--quiet")
    (other / ".git/objects/info").mkdir(exist_ok=True)
    (other / ".git/objects/info/alternates").write_text(f"{repository}/.git/objects\n")
    (other / ".git/objects/info/http-alternates").write_text(f"file://{repository}/.git/objects\n")
    (other / ".git/refs/heads/main").write_text(run(repository, "rev-parse", "HEAD"))
    with serve() as add:
        url = add(other, "r")
        with pytest.raises(DeployError):
            git.fetch(url)


def commit(folder, text):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(text)
    run(folder, "init", "-q")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "x")
    return folder


@pytest.mark.holds("addresses-asked")
def test_a_sources_own_dependencies_are_not_fetched(tmp_path, serve):
    told = []
    with serve() as add:
        inner = add(commit(tmp_path / "b", "dependencies = []\n"), "b")
        outer = add(commit(tmp_path / "a", f'dependencies = ["b @ {inner}"]\n'), "a")
        assert list(git.fetch_all([outer], told.append)) == [outer]
    assert len(told) == 1


@pytest.mark.holds("addresses-asked")
def test_a_source_that_unpacks_to_far_more_is_refused(tmp_path, serve):
    folder = tmp_path / "bomb"
    folder.mkdir()
    run(folder, "init", "-q")
    (folder / "zeros").write_bytes(bytes(8 << 20))
    for number in range(40):
        os.link(folder / "zeros", folder / f"zeros-{number}")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "x")
    with serve() as add, pytest.raises(DeployError, match="more than Muster allows"):
        git.fetch(add(folder, "bomb"))


def test_a_tree_bomb_is_refused(tmp_path, serve):
    folder = tmp_path / "tree"
    folder.mkdir()
    run(folder, "init", "-q")
    kind, name = (
        "100644 blob",
        subprocess.run(["git", "hash-object", "-w", "--stdin"], cwd=folder, input=b"x", capture_output=True, check=True)
        .stdout.decode()
        .strip(),
    )
    for _ in range(8):
        rows = "".join(f"{kind} {name}\td{number}\n" for number in range(10))
        made = subprocess.run(["git", "mktree"], cwd=folder, input=rows, text=True, capture_output=True, check=True)
        kind, name = "040000 tree", made.stdout.strip()
    top = run(folder, "commit-tree", "-m", "x", name).strip()
    run(folder, "update-ref", "refs/heads/main", top)
    with serve() as add, pytest.raises(DeployError, match=r"more time, memory or space|more than Muster allows"):
        git.fetch(add(folder, "tree"))


@pytest.mark.holds("addresses-asked")
def test_filters_requested_by_a_source_do_not_run(tmp_path, serve, monkeypatch):
    started = tmp_path / "started"
    settings = tmp_path / "gitconfig"
    settings.write_text(f'[filter "x"]\n\tsmudge = touch {started}; cat\n\tclean = cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    folder = commit(tmp_path / "a", "plain\n")
    (folder / ".gitattributes").write_text("* filter=x\n")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "y")
    with serve() as add:
        git.fetch(add(folder, "a"))
    assert not started.exists()
