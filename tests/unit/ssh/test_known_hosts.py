"""The known_hosts format, held against ssh-keygen, which wrote the book on it."""

import base64
import shutil
import subprocess

import pytest

from deploy.ssh import known_hosts

KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519 and the rest").decode()
RAW = base64.b64decode(KEY)


@pytest.mark.parametrize(
    ("field", "name", "known"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("x,a", "a", True),
        ("A", "a", True),
        ("[a]:2222", "[a]:2222", True),
        ("a", "[a]:2222", False),
        ("[a]:2222", "a", False),
        ("*.example.org,!door.example.org", "n1.example.org", True),
        ("*.example.org,!door.example.org", "door.example.org", False),
        ("10.0.0.?", "10.0.0.4", True),
        ("|1|not|base64", "a", False),
        ("|1|", "a", False),
    ],
)
def test_which_names_a_line_is_about(field, name, known):
    assert bool(known_hosts.lookup(f"{field} ssh-ed25519 {KEY} comment\n", name)) is known


def test_lines_keep_their_place_and_mark_and_what_makes_no_sense_is_passed_over():
    text = (
        f"# a\n\na\na ssh-ed25519 %%%\n@cert-authority a ssh-rsa {KEY}\n@revoked a ssh-rsa {KEY}\na ssh-ed25519 {KEY}\n"
    )
    assert known_hosts.lookup(text, "a", "file") == [
        known_hosts.Known("ssh-rsa", RAW, "file:6", revoked=True),
        known_hosts.Known("ssh-ed25519", RAW, "file:7"),
    ]


def test_a_mark_we_do_not_know_makes_no_key_known():
    assert not known_hosts.lookup(f"@trusted a ssh-ed25519 {KEY}\n", "a")
    assert known_hosts.lookup(f"@cert-authority a ssh-ed25519 {KEY}\n", "a")[0].authority


@pytest.mark.parametrize("salt", [None, b"s" * 20])
def test_a_line_we_write_is_found_again(salt):
    line = known_hosts.line("[a]:2222", "ssh-ed25519", RAW, salt)
    assert ("[a]:2222" in line) is (salt is None)
    assert known_hosts.lookup(line, "[a]:2222")[0].key == RAW
    assert not known_hosts.lookup(line, "[a]:2223")


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
def test_ssh_keygen_finds_what_we_hash_and_we_find_what_it_hashes(tmp_path):
    key, file = tmp_path / "key", tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    kind, data = (tmp_path / "key.pub").read_text().split()[:2]
    file.write_text(known_hosts.line("[a]:2222", kind, base64.b64decode(data), b"s" * 20))
    done = subprocess.run(["ssh-keygen", "-F", "[a]:2222", "-f", file], capture_output=True, text=True, check=False)
    assert data in done.stdout
    file.write_text(f"b {kind} {data}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], capture_output=True, check=True)
    assert file.read_text().startswith("|1|")
    assert known_hosts.lookup(file.read_text(), "b")[0].key == base64.b64decode(data)


def test_the_usual_port_is_not_named():
    assert known_hosts.host_name("GPU-a", 22) == "gpu-a"
    assert known_hosts.host_name("GPU-a", 2222) == "[gpu-a]:2222"
