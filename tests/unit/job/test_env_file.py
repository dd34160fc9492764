"""A file of variables is read like python-dotenv and docker compose read it, and no error shows its contents."""

from __future__ import annotations

import pytest

from deploy.core.errors import UsageError
from deploy.job.secrets import read_env_file
from lab import waiting

TEXT = """\
# settings
export HF_TOKEN=hf_1234567890
PLAIN = with blanks around   # a comment
SINGLE='it is $HOME and #no comment'
DOUBLE="line one\\nline two"
LINES="-----BEGIN KEY-----
abc
-----END KEY-----"
EMPTY=
QUOTED_EMPTY=""
URL=https://me:word@example.org/a#b
OTHER=${HF_TOKEN}-more

FROM_SHELL
NOWHERE
\tTABBED=1
"""


def test_quotes_exports_comments_empty_values_and_multiline_values_are_read(tmp_path, monkeypatch):
    path = tmp_path / ".env"
    path.write_text(TEXT)
    monkeypatch.setenv("FROM_SHELL", "of the shell")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert read_env_file(path) == {
        "HF_TOKEN": "hf_1234567890",
        "PLAIN": "with blanks around",
        "SINGLE": "it is $HOME and #no comment",
        "DOUBLE": "line one\nline two",
        "LINES": "-----BEGIN KEY-----\nabc\n-----END KEY-----",
        "EMPTY": "",
        "QUOTED_EMPTY": "",
        "URL": "https://me:word@example.org/a#b",
        "OTHER": "hf_1234567890-more",
        "FROM_SHELL": "of the shell",
        "TABBED": "1",
    }
    path.write_bytes(b"\xef\xbb\xbfA=1\r\nB=2\r\n")
    assert read_env_file(path) == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("text", "line"),
    [("A=1\n\n=sesame\n", 3), ("A='sesame\nB=2\n", 1), ("A=1\nsesame word\n", 2), ("A-B=sesame\n", 1)],
    ids=["no name", "open quote", "words", "odd name"],
)
def test_a_line_that_cannot_be_read_is_reported_only_by_its_number(tmp_path, text, line):
    path = tmp_path / ".env"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"line {line} ") as refused:
        read_env_file(path)
    assert "sesame" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"A=\0", b"A=" + b"x" * (2 << 20)], ids=["bytes", "nul", "large"])
def test_a_file_that_holds_no_variables_is_refused(tmp_path, data):
    path = tmp_path / ".env"
    path.write_bytes(data)
    with pytest.raises(UsageError):
        read_env_file(path)


@pytest.mark.holds("reader-budget")
@pytest.mark.parametrize(("text", "said"), [
    ("A=word\n" + "A=${A}${A}\n" * 60, "characters"), ("A=" + "${" * 100_000, "line 1 refers to more than"),
    ("A=" + "${B:-" * 100_000, "line 1 refers to more than"),
    ("".join(f"V{n + 1}=${{V{n}}}\n" for n in range(9_000)), ""),
    ("A\n" * 200_000, "variables"),
])  # fmt: skip
def test_values_that_refer_to_each_other_cost_little_time(tmp_path, text, said):
    path = tmp_path / ".env"
    path.write_text(text)
    with waiting.spending_little():
        if said:
            with pytest.raises(UsageError, match=said):
                read_env_file(path)
        else:
            assert len(read_env_file(path)) == 9_000
