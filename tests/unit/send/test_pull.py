"""An engine's progress messages during a pull, and which server an image's name makes Muster ask for a token."""

import json
import math
from types import SimpleNamespace

import pytest

from deploy.send.image import pull as pulls
from deploy.send.image import registry as registries
from deploy.send.image.pull import Progress
from deploy.send.image.registry import is_refusal, registry_of, token_for


def row(status, layer="a1", **detail):
    return json.dumps({"status": status, "id": layer, "progressDetail": detail})


def progress(*lines):
    made = Progress()
    for line in lines:
        made.take(line)
    return made


def test_the_bytes_of_all_layers_are_added():
    seen = progress(row("Downloading", current=5, total=20), row("Downloading", "b2", current=7, total=9))
    assert (seen.came, seen.size) == (12, 29)


def test_a_complete_layer_counts_with_its_full_size():
    seen = progress(row("Downloading", current=5, total=20), row("Download complete"), row("Extracting", current=1))
    assert (seen.came, seen.size) == (20, 20)


def test_the_error_of_a_failed_pull_is_kept():
    line = '{"errorDetail": {"message": "denied"}, "error": "denied: who asks?"}'
    assert progress(line).error == "denied: who asks?"


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "{}", "\ufffd", '{"status": 5}', '{"id": {}}', "[" * 90_000,
        row("Downloading", current=-5), row("Downloading", current="5"), row("Downloading", current=1e300),
        row("Downloading", "x" * 500, current=5), row("Download complete", "unknown"), "x" * 1_000_000,
    ],
)  # fmt: skip
def test_lines_that_make_no_sense_are_ignored(line):
    seen = progress(line, row("Downloading", current=5, total=20))
    assert (seen.came, seen.size, seen.error) in ((5, 20, ""), (0, 0, ""))


def test_an_engine_cannot_fill_the_memory_with_layers():
    seen = progress(*(row("Downloading", f"layer-{number}", current=1) for number in range(5000)))
    assert seen.came == 1000


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The (server, repository) pairs for which a token was requested; this machine is logged in to every registry."""
    login = {"auth": "YWRhOnNlY3JldA=="}
    named = ("https://index.docker.io/v1/", "ghcr.io", "10.0.0.1:5000", "localhost")
    (tmp_path / "config.json").write_text(json.dumps({"auths": dict.fromkeys(named, login)}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    pairs = []
    monkeypatch.setattr(registries, "_ask_for_token", lambda server, repository, *_: pairs.append((server, repository)))
    return pairs


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("pytorch", "docker.io", "library/pytorch"),
        ("pytorch/pytorch:2.13", "docker.io", "pytorch/pytorch"),
        ("docker.io/pytorch/pytorch", "docker.io", "pytorch/pytorch"),
        ("ghcr.io/team/image@sha256:aa", "ghcr.io", "team/image"),
        ("ghcr.io/team/image:1@sha256:aa", "ghcr.io", "team/image"),
        ("10.0.0.1:5000/image:tag", "10.0.0.1:5000", "image"),
        ("localhost/image", "localhost", "image"),
        ("team/image.with.dots:1", "docker.io", "team/image.with.dots"),
    ],
)
def test_the_image_name_determines_the_registry_and_the_repository(asked, image, registry, repository):
    assert registry_of(image) == registry
    token_for(image)
    assert asked == [("registry-1.docker.io" if registry == "docker.io" else registry, repository)]


@pytest.mark.holds("login-stays")
@pytest.mark.parametrize(
    "name", ["team/a:push repository:team/b", "a:push,pull/b", "team/a?x=1", "team/a#b", "a b", "", "team/a\nb"]
)
def test_an_image_name_cannot_request_other_rights_than_to_pull_it(asked, name):
    assert token_for(f"ghcr.io/{name}") == ""
    assert not asked


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
def test_a_refusal_is_distinguished_from_other_errors(words, refused):
    assert is_refusal(words) is refused


@pytest.mark.holds("login-stays")
@pytest.mark.parametrize("realm", ["http://ghcr.io/token", "file:///etc/passwd", "ftp://ghcr.io", "//ghcr.io", ""])
def test_a_login_is_never_sent_in_clear_text(monkeypatch, tmp_path, realm):
    (tmp_path / "config.json").write_text('{"auths": {"ghcr.io": {"auth": "YWRhOnNlY3JldA=="}}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(registries, "_server_of_tokens", lambda url: (realm, "ghcr"))
    opened = []
    monkeypatch.setattr(registries.urllib.request, "build_opener", lambda *_: opened.append(realm))
    assert token_for("ghcr.io/team/image:1") == ""
    assert not opened


@pytest.mark.parametrize(
    "settings",
    ["", "{}", "[]", '{"auths": 5}', '{"auths": {"ghcr.io": {"auth": "%%%"}}}', '{"credsStore": "../../bin/sh"}',
     '{"auths": {"other.io": {"auth": "YWRhOnNlY3JldA=="}}}', '{"credHelpers": {"ghcr.io": "not-there"}}'],
)  # fmt: skip
def test_without_a_readable_login_no_server_is_asked(monkeypatch, tmp_path, settings):
    (tmp_path / "config.json").write_text(settings)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(registries, "_server_of_tokens", lambda url: pytest.fail("asked"))
    assert token_for("ghcr.io/team/image:1") == ""


SIZE = 10_000


@pytest.fixture
def pulling(monkeypatch):
    """pulling(hosts, shared=): the hosts that began a pull, those that completed it, and the notes."""

    def run(hosts, shared=False, fails=(), quiet=lambda name, now: False):
        clock, going, began = [0.0], [], []

        def sleep(seconds):
            """Each second brings 60 bytes to every host, or to all together if they share one connection."""
            clock[0] += seconds
            together = len(going) if shared else 1
            for each in [*going]:
                each.progress.came += 0 if quiet(each.session.name, clock[0]) else 60 * seconds / together
                if each.progress.came >= SIZE:
                    each.end("")

        class Faked:
            """An engine that pulls, and the thread that waits for it."""

            def __init__(self, session, *_):
                self.session, self.fault, self.thread = session, "it has not ended", self
                self.progress = SimpleNamespace(came=0)
                began.append(session.name)
                going.append(self)
                if session.name in fails:
                    self.end("there is no such image")

            def end(self, fault):
                self.fault = fault
                going.remove(self)

            def is_alive(self):
                return self in going

            def join(self, seconds=math.inf):
                end = clock[0] + seconds
                while self.is_alive() and clock[0] < end:
                    sleep(0.05)

            def stop(self):
                self.end("it was stopped")

        monkeypatch.setattr(pulls, "Pull", Faked)
        monkeypatch.setattr(pulls, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
        notes = []
        sessions = [SimpleNamespace(name=name) for name in hosts]
        ended = pulls.pull(sessions, ["image"], lambda *_: None, notes.append)
        return began, [each.session.name for each in ended if not each.fault], notes

    return run


def test_hosts_that_share_one_connection_leave_it_to_the_first(pulling):
    assert pulling("abcdef", shared=True) == (
        [*"abcd"], ["a"], ["b, c, d, e, f: share the way to the registry with a, and wait for what it gets"],
    )  # fmt: skip


def test_hosts_with_connections_of_their_own_all_pull(pulling):
    assert pulling("abcdef") == ([*"abcdef"], [*"abcdef"], [])


@pytest.mark.parametrize("shared", [True, False])
def test_a_single_host_pulls_without_a_note(pulling, shared):
    assert pulling("a", shared) == (["a"], ["a"], [])


def test_a_host_that_gets_nothing_for_a_while_is_no_sign_of_a_shared_connection(pulling):
    """Such hosts unpack layers, or their engine has not begun yet."""
    everybody = ([*"abcdef"], [*"abcdef"], [])
    assert pulling("abcdef", quiet=lambda name, now: name in "bcd" and now < 60) == everybody
    assert pulling("abcdef", quiet=lambda name, now: 5.15 < now < 60) == everybody


def test_a_host_that_cannot_pull_delays_no_other(pulling):
    assert pulling("abcdef", fails="a") == ([*"abcdef"], [*"bcdef"], [])
