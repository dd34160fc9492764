"""Hostile package indexes, and what they achieve on this machine, with the real uv and a Python environment.

The attacks: another file under the same name, a redirect that would take the password along, a source whose build
would run here, an endless page.
"""

from __future__ import annotations

import base64
import hashlib
import resource
import sys
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import Results
from deploy.send.packages import install, requirements, uv
from deploy.send.packages.places import HERE, ProcessPlace
from deploy.send.packages.settings import Settings
from tests import index

GOOD = dict([index.wheel("plain", "1.0", "VALUE = 1")])
(NAME,) = GOOD
EVIL = index.wheel("plain", "1.0", "raise SystemExit('owned')")[1]


@contextmanager
def served(
    files: Mapping[str, bytes],
    moved: str = "",
    given: Mapping[str, bytes] | None = None,
    endless: bool = False,
    hashed: str = "sha256",
):
    """Serve an index; yields its address and the headers of each request.

    Its pages list `files`, each with one hash. It serves the content of `given` or `files`, or redirects to `moved`.
    """
    headers = list[dict[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append(dict(self.headers))
            name = self.path.rpartition("/")[2]
            if name in files and moved:
                self.send_response(302)
                self.send_header("Location", f"{moved}/{name}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = (files if given is None else given).get(name, b"")
            if not body:
                rows = [
                    f'<a href="/f/{f}#{hashed}={hashlib.new(hashed, data).hexdigest()}">{f}</a>'
                    for f, data in files.items()
                ]
                body = f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if not endless:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)
            while endless:
                self.wfile.write(b"<a href='x'>x</a>" * 4096)

        do_HEAD = do_GET

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", headers
        server.shutdown()


@pytest.fixture(scope="module")
def tool(tmp_path_factory) -> Path:
    """uv, downloaded once."""
    return Path(uv.program(tmp_path_factory.mktemp("uv"))).parents[1]


@pytest.fixture
def bring(tmp_path, tool):
    """Install the packages of a requirements text into an environment of this Python; returns its site-packages."""

    def bring(text: str, address: str) -> Path:
        folder, own = tmp_path / "folder", tmp_path / "cache/muster/packages"
        for made in (folder, own, own.parent / "environments"):
            made.mkdir(parents=True)
        (own / tool.name).symlink_to(tool)
        (folder / "requirements.txt").write_text(text)
        needs = requirements.read(folder, "requirements.txt", {"requirements.txt"})
        settings = Settings({"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1", "UV_HTTP_RETRIES": "0"})
        needs, settings = requirements.take_out_logins(needs, settings)
        place = ProcessPlace(HERE, sys.executable, own.parent / "environments", folder)
        place_of = {HERE: place}
        asked = install.PackageRequest(needs, settings, lambda *_: None, folder, each=each)
        done = install.install_packages(list(place_of.values()), asked, own)
        return next(Path(done.environments[HERE]).glob("lib/python*/site-packages"))

    return bring


def each(places, work) -> Results:
    outcomes = {}
    for place in places:
        try:
            outcomes[place.name] = work(place)
        except DeployError as fault:
            outcomes[place.name] = fault
    return Results(outcomes)


@pytest.mark.holds("pinned-hashes")
def test_another_file_under_the_same_name_is_not_installed(bring, tmp_path) -> None:
    with served(GOOD, given={NAME: EVIL}) as (url, _), pytest.raises(DeployError, match=r"(?i)hash"):
        bring("plain", f"{url}/simple")
    assert not list(tmp_path.glob("cache/muster/environments/*"))


@pytest.mark.holds("pinned-hashes")
def test_an_index_that_swaps_a_file_and_its_page_does_not_get_past_a_pin(bring, tmp_path) -> None:
    digest = hashlib.sha256(GOOD[NAME]).hexdigest()
    with served({NAME: EVIL}) as (url, _), pytest.raises(DeployError, match="hashes that your file does not pin"):
        bring(f"plain==1.0 --hash=sha256:{digest}", f"{url}/simple")
    assert not list(tmp_path.glob("cache/muster/environments/*"))


@pytest.mark.parametrize("hashed", ["sha512", "md5"])
def test_an_index_without_a_sha256_is_refused_with_a_readable_error(bring, tmp_path, hashed) -> None:
    with served(GOOD, hashed=hashed) as (url, _), pytest.raises(DeployError, match=r"plain.*is not a package"):
        bring("plain", f"{url}/simple")
    assert not list(tmp_path.glob("cache/muster/environments/*"))


def test_a_redirect_takes_no_password_along(bring) -> None:
    with (
        served(GOOD) as (elsewhere, there),
        served(GOOD, moved=f"{elsewhere.replace('127.0.0.1', 'localhost')}/f") as (
            url,
            here,
        ),
    ):
        packages = bring("plain", f"{url.replace('//', '//me:sesame@')}/simple")
    assert "VALUE" in (packages / "plain.py").read_text()
    assert any("Authorization" in headers for headers in here)
    assert there, "the redirect was followed"
    secret = base64.b64encode(b"me:sesame").decode()
    assert not [headers for headers in there if secret in str(headers)]


def test_an_endless_page_gives_an_error_and_does_not_fill_the_memory(bring) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with served(GOOD, endless=True) as (url, _), pytest.raises(DeployError):
        bring("plain", f"{url}/simple")
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) < 3 << 20, "KiB"


@pytest.mark.holds("addresses-asked")
def test_a_wheel_given_by_its_address_is_installed(bring) -> None:
    with served(GOOD) as (url, heard):
        packages = bring(f"plain @ {url}/w/{NAME}", f"{url}/simple")
    assert (packages / "plain.py").read_text() == "VALUE = 1"
    assert len([who for who in heard if "urllib" in who.get("User-Agent", "")]) == 1


@pytest.mark.holds("addresses-asked")
def test_a_redirect_to_a_metadata_service_is_refused(bring, tmp_path) -> None:
    with served(GOOD, moved="http://169.254.169.254/latest") as (url, _), pytest.raises(DeployError, match=r"169\.254"):
        bring(f"plain @ {url}/w/{NAME}", f"{url}/simple")


@pytest.mark.holds("addresses-asked")
def test_another_servers_redirect_to_this_machine_is_refused(bring) -> None:
    with served(GOOD) as (near, heard):
        moved = near.replace("127.0.0.1", "localhost")
        with served(GOOD, moved=moved) as (url, _), pytest.raises(DeployError, match="which no file may make"):
            bring(f"plain @ {url}/w/{NAME}", f"{url}/simple")
    assert not heard
