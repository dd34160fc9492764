"""Attacks on the board: from other sites in the same browser, from other users, and from files in a run folder."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import socket
import subprocess
import threading

import pytest

from deploy.host.status import parse_runs
from deploy.report import tables
from deploy.report.board import answers, runs, server
from deploy.report.page.data import MOST_READ
from tests.unit.report.test_page import HOSTILE, sample, write, write_lines
from tests.unit.report.test_scalars import line
from tests.unit.report.test_script_page import RECORD, plain_run, watched_run

SECRET, REVERSED, SHOWN = "the only copy", "a\u202egnp.sh", r"a\u202egnp.sh"


class Asking:
    """A listening board, and the requests that a browser or a program sends to it."""

    def __init__(self, server):
        self.server, self.port = server, server.server_address[1]

    def ask(self, path="", method="GET", token=None, host=None, **headers):
        """Status, headers and body of an answer; `path` is the part after the token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, f"/{token or self.server.token}/{path}", skip_host=True)
        for value in [f"127.0.0.1:{self.port}"] if host is None else host:
            connection.putheader("Host", value)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()

    def raw(self, sent):
        """What the board sends back for these bytes until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(sent)
            pieces = iter(lambda: connection.recv(4096), b"")
            return b"".join(pieces)


@pytest.fixture
def board(tmp_path):
    """A board with two runs, next to a file that it must never show."""
    sample(tmp_path / "runs/first")
    watched_run(tmp_path / "runs/second")
    (tmp_path / "outside.log").write_text(SECRET)
    with server.Server(answers.Board(tmp_path / "runs")) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield Asking(listening)
        listening.shutdown()
        thread.join()


@pytest.mark.holds("board-is-ones-own")
def test_the_boards_own_page_gets_the_list_and_each_run(board):
    status, headers, page = board.ask()
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "'unsafe-inline'" not in headers["Content-Security-Policy"].partition("script-src")[2]
    assert "Runs" in page
    rows = json.loads(board.ask("runs.json", Sec_Fetch_Site="same-origin")[2])["rows"]
    assert {row["id"] for row in rows} == {"first", "second"}
    assert board.ask("run/first/")[0] == 200
    assert "hello from 0" in board.ask("run/second/logs/rank-0.log")[2]


@pytest.mark.holds("board-is-ones-own")
def test_a_foreign_host_header_is_refused(board):
    for host in (
        ["evil.test"],
        [f"evil.test:{board.port}"],
        [],
        [f"127.0.0.1:{board.port}", "evil.test"],
        ["127.0.0.1"],
    ):
        assert board.ask("runs.json", host=host)[0] in (400, 403), host


@pytest.mark.holds("board-is-ones-own")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_site_in_the_same_browser_is_refused(board, headers):
    status, answered, body = board.ask("runs.json", **headers)
    assert (status, body) == (403, "refused\n")
    assert "Access-Control-Allow-Origin" not in answered


@pytest.mark.holds("board-is-ones-own")
def test_another_user_of_this_machine_has_no_token(board):
    """Every user can reach the loopback address: no answer contains the token, and a part of it does not open."""
    token = board.server.token
    assert len(token) >= 32
    for wrong in ("x", token[:-1], f"{token}x", token.swapcase(), "%00"):
        status, _, body = board.ask("runs.json", token=wrong)
        assert (status, body) == (403, "refused\n")
    assert b" 403 " in board.raw(b"GET /\xe9\xff/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % board.port)
    assert token not in board.raw(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % board.port).decode()


@pytest.mark.holds("board-is-ones-own")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user too")
def test_another_user_who_saw_the_boards_address_gets_nothing(board):
    """A browser gets the address, with its token, as a command-line argument, and `ps` shows that to every user."""
    head = f"GET /{board.server.token}/runs.json HTTP/1.1\\r\\nHost: 127.0.0.1:{board.port}\\r\\n\\r\\n"
    line = f"exec 3<>/dev/tcp/127.0.0.1/{board.port}; printf '{head}' >&3; cat <&3"
    for user, shown in ((65534, False), (0, True)):
        done = subprocess.run(["bash", "-c", line], user=user, capture_output=True, text=True, timeout=30, check=False)
        assert ('"first"' in done.stdout, " 403 " in done.stdout) == (shown, not shown), done


@pytest.mark.holds("board-is-ones-own")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT", "x"])
def test_nothing_but_get_is_answered(board, method):
    before = sorted(board.server.board.runs.folder.rglob("*"))
    assert board.ask("run/first/", method=method)[0] in (405, 501)
    assert sorted(board.server.board.runs.folder.rglob("*")) == before


@pytest.mark.holds("board-is-ones-own")
@pytest.mark.parametrize(
    "path",
    [
        "../outside.log",
        "run/../../outside.log",
        "run/%2e%2e/outside.log",
        "run/first/../../outside.log",
        "run/first/logs/../../../outside.log",
        "run/first/logs/%2e%2e%2f%2e%2e%2foutside.log",
        "run/first/work/a.log",
        "run/first/.lock",
        "run/first//etc/passwd",
        "run/latest/",
        "run/first/record.json%00.log",
        "compare/?run=first&run=../..",
        "compare/?run=first",
    ],
)
def test_no_path_leads_out_of_a_run(board, path):
    os.symlink(board.server.board.runs.folder / "first", board.server.board.runs.folder / "latest")
    status, _, body = board.ask(path)
    assert status == 404
    assert SECRET not in body


@pytest.mark.holds("board-is-ones-own")
def test_a_link_in_the_place_of_a_run_a_folder_or_a_file_shows_nothing(board, tmp_path):
    runs, outside = board.server.board.runs.folder, tmp_path / "elsewhere"
    watched_run(outside)
    (outside / "logs/rank-0.log").write_text(SECRET)
    write(outside / "outcome.json", {"verdict": "done", "message": SECRET})
    os.symlink(outside, runs / "third")
    plain_run(runs / "fourth")
    for name in ("outcome.json", "record.json", "metrics.jsonl", "logs", "ranks"):
        place = runs / "fourth" / name
        place.rename(tmp_path / f"old-{name}") if place.exists() else None
        os.symlink(outside / name, place)
    os.mkfifo(runs / "fourth/code.json")
    seen = [board.ask(path)[2] for path in ("runs.json", "run/third/", "run/fourth/", "run/fourth/logs/rank-0.log")]
    seen += [board.ask("run/fourth/outcome.json")[2], board.ask("compare/?run=first&run=fourth")[2]]
    assert not [text for text in seen if SECRET in text]
    assert {row["id"] for row in json.loads(seen[0])["rows"]} == {"first", "second", "fourth"}


@pytest.mark.holds("board-is-ones-own")
def test_a_huge_file_is_read_in_part_and_shown_by_its_end(board):
    folder = board.server.board.runs.folder / "second"
    with open(folder / "logs/rank-0.log", "wb") as file:
        file.truncate(1 << 33)
        file.seek(0, os.SEEK_END)
        file.write(b"the end\n")
    with open(folder / "metrics.jsonl", "ab") as file:
        file.truncate(4 * MOST_READ)
    body = board.ask("run/second/logs/rank-0.log")[2]
    assert len(body) < 1.1 * answers.MOST_FILE
    assert body.endswith("the end\n")
    assert board.ask("runs.json")[0] == 200
    assert len(board.ask("run/second/")[2]) < 1 << 20


@pytest.mark.holds("board-is-ones-own")
def test_a_script_in_every_field_stays_text(board):
    """The list is JSON that no browser takes for a page; a run's page has one script, allowed by its digest."""
    folder = board.server.board.runs.folder / "second"
    write(
        folder / "record.json", {**RECORD, "arguments": [HOSTILE], "nodes": ["n"], "hosts": [HOSTILE], "why": HOSTILE}
    )
    write(
        folder / "outcome.json",
        {"verdict": HOSTILE, "message": f"{HOSTILE}\n{HOSTILE}", "hint": HOSTILE, "node": HOSTILE},
    )
    write_lines(folder / "metrics.jsonl", [{"step": 1, "loss": HOSTILE, "t": HOSTILE}])
    (folder / "logs/rank-0.log").write_text(HOSTILE.encode("ascii", "replace").decode())
    for path, kind in (("runs.json", "application/json"), ("run/second/logs/rank-0.log", "text/plain")):
        _, headers, _ = board.ask(path)
        assert headers["Content-Type"].startswith(kind)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in headers["Content-Security-Policy"]
    _, headers, page = board.ask("run/second/")
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "sha256-" in headers["Content-Security-Policy"]


@pytest.mark.holds("text-is-text")
def test_what_the_boards_scripts_show_holds_no_control_character(board):
    """A browser obeys a bidirectional override in a log, a message or a chart's name, as a terminal does."""
    folder = board.server.board.runs.folder / "second"
    write(folder / "outcome.json", {"verdict": "failed", "message": REVERSED, "hint": REVERSED, "node": "n"})
    (folder / "logs/rank-0.log").write_text(f"10 %\r20 %\n\x1b[31m{REVERSED}\x1b[0m\n")
    write_lines(folder / "scalars/master.jsonl", [line(**{REVERSED: [[1, 1.0], [2, 2.0]]})])
    row = next(row for row in json.loads(board.ask("runs.json")[2])["rows"] if row["id"] == "second")
    assert row["message"] == SHOWN
    assert board.ask("run/second/logs/rank-0.log?look=1&")[2] == f"20 %\n{SHOWN}\n"
    assert REVERSED in board.ask("run/second/logs/rank-0.log")[2], "the file itself stays as it is"
    page = board.ask("run/second/")[2]
    charts = [json.loads(html.unescape(data)) for data in re.findall(r'data-chart="([^"]*)"', page)]
    assert SHOWN in json.dumps(charts).replace("\\\\", "\\")
    assert "\u202e" not in "".join(map(str, charts))


@pytest.mark.holds("board-is-ones-own")
def test_slow_and_endless_requests_block_nobody(board):
    slow = [socket.create_connection(("127.0.0.1", board.port)) for _ in range(8)]
    for each in slow:
        each.sendall(b"GET / HTTP/1.1\r\n")
    assert board.ask("runs.json")[0] == 200
    assert b"200 OK" not in board.raw(b"GET /" + b"a" * (32 << 10))
    for each in slow:
        each.settimeout(30)
        assert each.recv(1) == b""  # the board closes the connection
        each.close()
    assert board.ask("runs.json")[0] == 200


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"[{}]\r\n\r\n"]
)
def test_garbage_does_not_end_the_board(board, sent):
    with socket.create_connection(("127.0.0.1", board.port)) as connection:
        connection.sendall(sent)
    assert board.ask("runs.json")[0] == 200


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("sent", [b"http://[", b"/%s/runs.json?" + b"a=1&" * 40])
def test_an_invalid_address_prints_nothing_in_the_boards_terminal(board, sent):
    head = b"GET %s HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"
    assert board.raw(head % (sent.replace(b"%s", board.server.token.encode()), board.port)) == b""


class Strangers:
    """Hostile hosts: their runs, as parsed from their answers."""

    def __init__(self, answer):
        self.faults, self.looked_at = [HOSTILE], 0.0
        self.found = parse_runs(answer)

    def rows(self):
        """One row for each run."""
        return [runs.row_elsewhere(value, "muster fetch") for value in tables.run_values({"gpu-a": self.found})]


@pytest.mark.holds("board-is-ones-own")
def test_a_host_cannot_replace_a_local_run_or_add_one_with_an_invalid_name(board):
    """Names with a path or a script are not runs; if a run is on this machine, the board shows the local one."""
    odd = ("../outside", "<img src=x>", "second;id", "first")
    board.server.board._elsewhere = Strangers("\n".join(f"folder {name} 5 10 7" for name in (*odd, "third")))
    rows = {row["id"]: row for row in json.loads(board.ask("runs.json")[2])["rows"]}
    assert set(rows) == {"first", "second", "third"}
    assert "command" not in rows["first"]
    assert [*rows][-1] == "third", "the oldest"
    assert rows["third"]["command"] == "muster fetch"


@pytest.mark.holds("board-is-ones-own")
@pytest.mark.parametrize(
    "kept", [[1], {HOSTILE: 7}, {HOSTILE: {"files": "1", "bytes": {}}}, {"a": {"files": 1e99, "bytes": -1}}]
)
def test_odd_numbers_and_names_of_a_host_stay_text_or_are_left_out(board, kept):
    folder = board.server.board.runs.folder / "second"
    write(folder / "record.json", {**RECORD, "user": HOSTILE, "hosts": [HOSTILE], "backend": "hosts"})
    write(
        folder / "outcome.json",
        {"verdict": "failed", "rank": 1e300, "cause": HOSTILE, "message": HOSTILE, "kept": kept},
    )
    write_lines(
        folder / "telemetry/a.jsonl",
        [
            {"node": name, "t": t, "cpu_percent": use}
            for name in ("a", HOSTILE)
            for t, use in ((1, 5.0), (1e10, 5.0), (2, 1e9))
        ],
    )
    _, _, page = board.ask("run/second/")
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert "muster fetch" not in page
    assert "muster logs" not in page


@pytest.mark.holds("board-is-ones-own")
def test_huge_files_without_line_ends_block_nobody(board):
    """A sample reads only some places of a file, whatever the file contains."""
    folder = board.server.board.runs.folder / "second"
    for name in ("metrics.jsonl", "ranks/rank-0.jsonl", "telemetry/a.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        with open(folder / name, "ab") as file:
            file.write(b'{"kind": "step", ' * 4096)
            file.truncate(1 << 32)
    assert board.ask("runs.json")[0] == 200
    assert "still being read" in board.ask("run/second/")[2]
