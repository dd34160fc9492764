"""The paths in a rank's last output, however a library words that a file is missing."""

import pytest

from deploy.send.folder import named_paths

PLACES = [
    "/muster/run/work/data/a.bin",
    "rack-1:~/.muster/runs/r-1/work/data/a.bin",
    "runs/r-1/work/data/a.bin",
    "/muster/runs/r-1/work/data/a.bin",
    "/workspace/data/a.bin",
    "./data/a.bin",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_path_is_recognized_wherever_the_folder_is(place):
    assert "work/data/a.bin" in named_paths.missing(f"FileNotFoundError: Unable to find '{place}'", "r-1")


@pytest.mark.parametrize(
    "words",
    [
        "FileNotFoundError: Couldn't find any data file at /muster/run/work/data/a.bin.",
        "OSError: data/a.bin not found.",
        'FileNotFoundError: No such file or directory: "data/a.bin"',
        "terminate called after throwing\n  what():  could not open data/a.bin",
        "h5py: unable to open file (name = 'data/a.bin', errno = 2, error message = 'No such')",
        "error: argument --data: can't open 'data/a.bin'",
        "polars: No such file or directory (os error 2): data/a.bin",
        "[rank1]: FileNotFoundError: [PosixPath('data/a.bin')] does not exist",
        "cannot open file=data/a.bin",
    ],
)
def test_the_file_is_found_in_the_messages_of_many_libraries(words):
    assert "work/data/a.bin" in named_paths.missing(words)


def test_a_file_of_the_home_is_distinguished_from_one_of_the_folder():
    assert named_paths.all_of("FileNotFoundError: '/muster/run/home/.cache/w.pt'") == ["home/.cache/w.pt"]


def test_a_message_that_misses_no_file_gives_no_path():
    assert not named_paths.missing("train.py ended with 1\n    OSError: models/bert has no weights, nor has data")


def verdict(error):
    """The message of a rank's end as a node writes it: the error, and below it the rank's traceback."""
    code = '    [rank1]: Traceback (most recent call last):\n    [rank1]:   File "train.py", line 3\n'
    return f'train.py ended with 1: {error}\n{code}    [rank1]:     load("data/a.bin")\n    [rank1]: {error}'


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        ("Exception: No such file or directory (os error 2)", True),
        ("lib.errors.FileNotFoundError: No such file or directory", True),
        ("ValueError: 3 columns", False),
        ("FileNotFoundError: 'other/b.bin'", False),
    ],
)
def test_lines_of_code_count_only_if_the_error_misses_a_file_without_naming_it(error, counts):
    assert ("work/data/a.bin" in named_paths.missing(verdict(error))) == counts


@pytest.mark.parametrize(
    "path", ["/muster/run/logs/rank-0.log", "runs/r-1/record.json", "/etc/passwd", "../x", "a/\0b"]
)
def test_a_path_elsewhere_is_not_a_path_of_the_script(path):
    assert not named_paths.all_of(f"No such file: '{path}'", "r-1")


def test_a_path_with_wildcards_is_reduced_to_its_folder():
    assert named_paths.all_of("FileNotFoundError: 'data/en/*.txt'") == ["work/data/en"]
    assert named_paths.missing("FileNotFoundError: 'data/*/a-?.txt'") == ["work/FileNotFoundError", "work/data"]


def test_an_impossible_path_is_not_a_path_above_the_folder():
    line = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    assert named_paths.outside(line.format("../a.bin")) == ["../a.bin"]
    for word in ("../a\0b", "../" + "a" * 500, "/etc/passwd", "own/../a.bin"):
        assert named_paths.outside(line.format(word)) == []
