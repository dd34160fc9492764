"""A source is fetched by its hash; the index's login is sent to that index only."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages.from_source import sdists
from deploy.send.packages.settings import Settings
from tests import index

NAME, DATA = index.source("odd", "1.0", "")
SHA = hashlib.sha256(DATA).hexdigest()


@contextmanager
def answering(code, headers=(), pieces=(b"",)):
    """Run a server that gives this answer; yield its address and the headers of the requests."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(dict(self.headers))
            self.send_response(code)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in pieces:
                    self.wfile.write(piece)
            except OSError:
                return

        def log_message(self, *_):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()


def test_the_login_of_the_index_is_sent_for_its_files_and_to_no_other_host(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with index.serve("127.0.0.1", {NAME: DATA}) as url:
        place = url.rpartition("/")[0].replace("me:sesame-4715@", "")
        for variables in (
            {"UV_DEFAULT_INDEX": url},
            {
                "UV_INDEX": f"mine={place}/simple",
                "UV_INDEX_MINE_USERNAME": "me",
                "UV_INDEX_MINE_PASSWORD": "sesame-4715",
            },
        ):
            assert sdists.fetch(f"{place}/files/{NAME}", [SHA], Settings(variables))[:] == DATA
        with pytest.raises(DeployError, match="401"):
            sdists.fetch(f"{place}/files/{NAME}", [SHA], Settings({}))
        with answering(200, pieces=[DATA]) as (other, heard):
            assert sdists.fetch(f"{other}/{NAME}", [SHA], Settings({"UV_DEFAULT_INDEX": url}))[:] == DATA
        assert "Authorization" not in heard[0]


def test_a_redirect_does_not_forward_the_login():
    with answering(200, pieces=[DATA]) as (far, heard), answering(302, [("Location", f"{far}/x")]) as (near, asked):
        own = Settings({"UV_DEFAULT_INDEX": near.replace("//", "//me:sesame-4715@")})
        assert sdists.fetch(f"{near}/{NAME}", [SHA], own)[:] == DATA
    assert "Authorization" in asked[0]
    assert "Authorization" not in heard[0]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ([("Content-Length", str(len(DATA)))], DATA[:-1]),
        ([("Transfer-Encoding", "chunked")], b"1000\r\nabc"),
        ([("X", "a" * 70_000)], DATA),
    ],
    ids=["cut", "cut in a chunk", "an endless head"],
)
def test_a_truncated_or_invalid_http_answer_is_not_a_file(head, body):
    """This holds even if no file pins a hash of the source."""
    with answering(200, head, [body]) as (url, _), pytest.raises(DeployError, match=r"was cut|cannot be fetched"):
        sdists.fetch(f"{url}/{NAME}", [], Settings({}))


def test_a_wrong_endless_or_local_file_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sdists, "MOST", 1 << 20)
    with answering(200, pieces=[DATA]) as (url, _), pytest.raises(DeployError, match="does not have the hash"):
        sdists.fetch(f"{url}/{NAME}", ["0" * 64], Settings({}))
    endless = (bytes(1 << 16) for _ in range(1000))
    with answering(200, pieces=endless) as (url, _), pytest.raises(DeployError, match="more than"):
        sdists.fetch(f"{url}/{NAME}", [SHA], Settings({}))
    (tmp_path / NAME).write_bytes(DATA)
    path = (tmp_path / NAME).as_uri()
    with pytest.raises(DeployError, match="not fetched"):
        sdists.fetch(path, [SHA], Settings({"UV_DEFAULT_INDEX": "https://index.example/simple"}))
    with answering(302, [("Location", path)]) as (url, _), pytest.raises(DeployError):
        sdists.fetch(f"{url}/{NAME}", [SHA], Settings({}))
    assert sdists.fetch(path, [SHA], Settings({"UV_DEFAULT_INDEX": f"file://{tmp_path}"}))[:] == DATA
    assert "sesame" not in str(refusal("https://me:sesame-4715@127.0.0.1:9/x"))


def refusal(url):
    with pytest.raises(DeployError) as refused:
        sdists.fetch(url, [SHA], Settings({}))
    return refused.value
