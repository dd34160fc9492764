"""Data named by a user, in `--data` and in [[data]] of cluster.toml; mistakes are refused by name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job import wishes
from deploy.job.cluster import from_file
from deploy.job.consent import lines
from deploy.job.load import load_cluster
from deploy.job.option_words import read_again, words_again
from deploy.job.options import Options
from deploy.job.values import Data, Mount, data

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def write(tmp_path):
    def put(tables):
        path = tmp_path / "cluster.toml"
        path.write_text(f'hosts = ["a"]\n{tables}\n')
        return path

    return put


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("corpus:/data", Data(Path("corpus"), "/data")),
        ("~/corpus:/data//x/", Data(Path.home() / "corpus", "/data/x")),
        ("/odd:name, here:/data", Data(Path("/odd:name, here"), "/data")),
        ("corpus", None),
        ("corpus:", None),
        (":/data", None),
        ("corpus:data", None),
        ("corpus:/", None),
        ("corpus:/data/..", None),
        ("corpus:/data/../muster/run", None),
        ("corpus:/workspace", None),
        ("corpus:/workspace/data", None),
        ("corpus:/muster", None),
        ("corpus:/a\nb", None),
        ("a\0b:/data", None),
        ("corpus:/data:ro", None),
    ],
)
def test_the_data_option_names_a_folder_and_its_target(text, read):
    assert data(text) == read


def test_a_file_names_data_relative_to_its_folder_and_typed_data_replaces_it(write, tmp_path):
    path = write(
        f'[[data]]\nfolder = "corpus"\ntarget = "/data"\ndigest = "{DIGEST}"\n'
        '[[data]]\nfolder = "/abs"\ntarget = "/abs"\n[job]\nmounts = ["/m:/m"]'
    )
    job = from_file(path).job
    assert job.data == (Data(tmp_path / "corpus", "/data", DIGEST), Data(Path("/abs"), "/abs"))
    typed = Options(hosts="a", data=("other:/data", "more:/more"))
    assert [each.target for each in load_cluster(typed).job.data] == ["/data", "/more"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('folder = "x"', "a folder needs a target"),
        ('target = "/x"', "a folder needs a target"),
        ('folder = "x"\ntarget = "x"', r"data\[0\].target"),
        ('folder = "x"\ntarget = "/muster/code"', r"data\[0\].target"),
        ('folder = "x"\ntarget = "/x:y"', r"data\[0\].target"),
        ('folder = 1\ntarget = "/x"', r"data\[0\].folder"),
        ('folder = "\\u0000"\ntarget = "/x"', r"data\[0\].folder"),
        ('folder = "x"\ntarget = "/x"\ndigest = "abc"', r"data\[0\].digest"),
        (f'folder = "x"\ntarget = "/x"\ndigest = "{DIGEST.upper()}"', r"data\[0\].digest"),
        ('folder = "x"\ntarget = "/x"\nread_only = false', "unknown key"),
    ],
)
def test_a_mistake_in_a_table_is_reported_with_its_path(write, table, words):
    with pytest.raises(UsageError, match=words):
        from_file(write(f"[[data]]\n{table}"))


@pytest.mark.parametrize(
    ("more", "other"),
    [
        ({"data": ("x:/data", "y:/data")}, "/data"),
        ({"data": ("x:/data", "y:/data/y")}, "/data/y"),
        ({"data": ("x:/data/x/y",), "mount": ("/m:/data",)}, "/data"),
        ({"data": ("x:/data",), "mount": ("/m:/data/m",)}, "/data/m"),
        ({"data": ("x:/data",), "keep": ("/data/out",)}, "/data/out"),
    ],
)
def test_data_that_overlaps_another_mount_is_refused(more, other):
    with pytest.raises(UsageError, match=f"{other} is mounted too"):
        load_cluster(Options(hosts="a", **more))
    assert load_cluster(Options(hosts="a", data=("x:/data",), mount=("/m:/database",))).job.mounts == (
        Mount("/m", "/database", False),
    )


@pytest.mark.holds("folder-asks")
def test_the_user_is_asked_about_each_data_folder_and_target_of_a_file(write):
    """This includes a folder below the file's own: data has no ignore rules, so ignored files would be sent, too."""
    path = write('[[data]]\nfolder = "in"\ntarget = "/a"\n[[data]]\nfolder = "/out"\ntarget = "/b"')
    cluster = from_file(path)
    assert lines(wishes.wishes((), cluster.job, path)) == [
        f"data all of {path.parent}/in, to /a on the hosts",
        "data all of /out, to /b on the hosts",
    ]


def test_a_resume_repeats_the_typed_data():
    options = Options(data=("~/corpus:/data", "b:/b"))
    assert read_again(shlex.join(words_again(options))) == options
