"""A requirements file's password reaches no file on a host: indexes move to the settings; git fetches here."""

from __future__ import annotations

import base64
import subprocess

import pytest

from deploy.core.errors import UsageError
from deploy.send.folder import credentials
from deploy.send.packages import requirements, settings
from deploy.send.packages.from_source import git
from deploy.send.packages.requirements import Requirements
from deploy.send.packages.settings import Settings
from tests import certificate, index

# These tests start other programs.
pytestmark = pytest.mark.long

TEXT = """--extra-index-url https://me:sesame-1@index/simple
-i https://me:sesame-2@other/simple
plain  # of https://me:word@nowhere
mine @ git+https://me:sesame-3@host/mine.git@v1
"""
WORD = "git+https://me:sesame-3@host/mine.git@v1"


def needs(text: str, path: str = "requirements.txt") -> Requirements:
    return Requirements(path, "file", ((path, requirements._decode_lines(text.encode(), path)),), git=(WORD,))


def test_indexes_move_to_the_settings_and_no_password_stays_in_the_text() -> None:
    taken, own = requirements.take_out_logins(needs(TEXT), Settings({"UV_INDEX": "https://first/simple"}))
    ((path, content),) = taken.files
    assert path == "requirements.txt"
    assert b"sesame" not in content
    assert content.splitlines()[2:4] == [b"plain", b"mine @ git+https://host/mine.git@v1"]
    assert own.variables["UV_INDEX"] == "https://first/simple https://me:sesame-1@index/simple"
    assert own.variables["UV_DEFAULT_INDEX"] == "https://me:sesame-2@other/simple"
    assert settings.drop_logins(WORD) in content.decode(), "what names the fetched source is in the text"


def test_any_other_password_is_refused_by_its_line_and_not_shown() -> None:
    with pytest.raises(UsageError, match=r"requirements\.txt:1: x @ https://\*\*\*@host") as refused:
        requirements.take_out_logins(needs("x @ https://me:sesame-4@host/x.whl\n"), Settings())
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "text", "kept"),
    [
        ("requirements.txt", "-i https://me:sesame@index/simple", True),
        ("req/requirements-dev.in", "x @ https://:sesame@host/x.whl", True),
        ("requirements/base.txt", "-i https://me:sesame@index/simple", True),
        ("requirements.txt", "-i https://me:${TOKEN}@index/simple", False),
        ("requirements.txt", "x @ git+ssh://git@host/x.git", False),
        ("requirements.txt", "x @ git+https://org@host/x.git", False),
        ("requirements.txt", "x @ git+https://ghp_0123456789abcdefghij@host/x.git", True),
        ("requirements.txt", "x @ git+https://${A_TOKEN_WITH_A_LONG_NAME}@host/x.git", False),
        ("notes.txt", "see https://me:sesame@host", False),
    ],
)
def test_only_a_requirements_file_with_a_password_is_kept_on_this_machine(path: str, text: str, kept: bool) -> None:
    assert (credentials.credential_in(path, text.encode(), {}) == credentials.IN_AN_ADDRESS) is kept


def test_hosts_install_from_the_index_that_a_file_names() -> None:
    given, own = needs("plain\n"), Settings({"UV_INDEX": "x"})
    assert requirements.take_out_logins(given, own) == (given, own)
    taken, own = requirements.take_out_logins(needs("-i https://index/simple\nplain\n"), own)
    assert own.variables == {"UV_INDEX": "x", "UV_DEFAULT_INDEX": "https://index/simple"}
    assert taken.files[0][1].split() == [b"plain"]


def test_a_user_name_in_a_source_is_removed_from_the_text_too() -> None:
    word = "git+https://org@host/mine.git@v1"
    given = Requirements("pyproject.toml", "file", (("pyproject.toml", f'["mine @ {word}"]'.encode()),), git=(word,))
    taken, _ = requirements.take_out_logins(given, Settings())
    assert settings.drop_logins(word) in taken.files[0][1].decode()


@pytest.mark.holds("git-passwords")
@pytest.mark.parametrize(
    ("login", "quoted"), [("me:sesame 4%40/x", "me:sesame%204%2540%2Fx"), ("sesame-as-a-user:", "sesame-as-a-user")]
)
def test_git_logs_in_without_the_password_on_any_command_line(tmp_path, monkeypatch, login: str, quoted: str) -> None:
    def run(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "code.py").write_text("x")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x"), ("update-server-info",)):
        run(*words)
    top = tmp_path / ".git"
    files = {f"/r.git/{path.relative_to(top)}": path.read_bytes() for path in top.rglob("*") if path.is_file()}
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    signed = certificate.make(tmp_path / "tls.pem")
    monkeypatch.setenv("GIT_SSL_CAINFO", str(signed))
    with index.serve("127.0.0.1", files, login, signed) as url:
        address = url.replace(login, quoted).removesuffix("/simple")
        assert git.fetch(f"git+{address}/r.git")
    commands = trace.read_text()
    assert "remote-https" in commands
    assert "sesame" not in commands
    assert base64.b64encode(login.encode()).decode() not in commands
