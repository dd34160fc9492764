"""What an engine says while it pulls, and what of an image's name decides who is asked for a token."""

import json

import pytest

from deploy.send.image.pull import Progress
from deploy.send.image.registry import _repository, is_refusal, registry_of


def row(status, layer="a1", **detail):
    return json.dumps({"status": status, "id": layer, "progressDetail": detail}).encode() + b"\r\n"


def progress(*lines):
    made = Progress()
    for line in lines:
        made.take(line)
    return made


def test_bytes_are_those_of_all_layers():
    seen = progress(row("Downloading", current=5, total=20), row("Downloading", "b2", current=7, total=9))
    assert (seen.came, seen.size) == (12, 29)


def test_a_layer_that_is_complete_counts_whole():
    seen = progress(row("Downloading", current=5, total=20), row("Download complete"), row("Extracting", current=1))
    assert (seen.came, seen.size) == (20, 20)


def test_a_row_may_come_in_pieces():
    line = row("Downloading", current=5, total=20)
    assert progress(*(line[at : at + 1] for at in range(len(line)))).came == 5


def test_the_last_words_of_a_pull_that_failed_are_its_error():
    assert (
        progress(b'{"errorDetail": {"message": "denied"}, "error": "denied: who asks?"}\n').error == "denied: who asks?"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"null\n", b"[]\n", b"{}\n", b"\xff\xfe\n", b'{"status": 5}\n', b'{"id": {}}\n', b"[" * 90_000 + b"\n",
        row("Downloading", current=-5), row("Downloading", current="5"), row("Downloading", current=1e300),
        row("Downloading", "x" * 500, current=5), row("Download complete", "unknown"), b"x" * 1_000_000,
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_nothing(line):
    seen = progress(line, row("Downloading", current=5, total=20))
    assert (seen.came, seen.size, seen.error) in ((5, 20, ""), (0, 0, ""))


def test_an_engine_cannot_fill_the_memory_with_layers():
    seen = progress(*(row("Downloading", f"layer-{number}", current=1) for number in range(5000)))
    assert seen.came == 1000


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("pytorch", "docker.io", "library/pytorch"),
        ("pytorch/pytorch:2.13", "docker.io", "pytorch/pytorch"),
        ("docker.io/pytorch/pytorch", "docker.io", "pytorch/pytorch"),
        ("ghcr.io/team/image@sha256:aa", "ghcr.io", "team/image"),
        ("10.0.0.1:5000/image:tag", "10.0.0.1:5000", "image"),
        ("localhost/image", "localhost", "image"),
        ("team/image.with.dots:1", "docker.io", "team/image.with.dots"),
    ],
)
def test_the_name_says_which_registry_and_what_of_it(image, registry, repository):
    assert registry_of(image) == registry
    assert _repository(image, registry) == repository


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("pull access denied for team/image, repository does not exist or may require 'docker login'", True),
        ("Head https://ghcr.io/v2/: unauthorized", True),
        ("no basic auth credentials", True),
        ("manifest unknown", False),
        ("dial tcp: lookup registry-1.docker.io: no such host", False),
        ("toomanyrequests: You have reached your pull rate limit", False),
    ],
)
def test_a_refusal_is_told_from_other_faults(words, refused):
    assert is_refusal(words) is refused
