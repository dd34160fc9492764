"""Credentials planted in a user's folder: none is sent to the hosts, whatever its name.

tests/cluster/test_secrets.py searches real hosts for secrets that go into containers.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job.load import load_cluster
from deploy.job.options import Options
from deploy.send.folder import credentials, folder_look, left_out
from deploy.send.folder.credentials import SendChoice, send_choice_of
from deploy.send.folder.folder_stream import FolderStream
from lab import waiting

BODY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}-----END OPENSSH PRIVATE KEY-----\n"
PLANTED = "sesame-4711"
NAMED = [
    *(".env", ".env.local", "conf/prod.env", ".envrc", ".netrc", "wandb/netrc", "id_rsa", "keys/id_ed25519", ".ENV"),
    *(".aws/credentials", ".aws/sso/cache/x.json", ".kube/config", ".ssh/known", ".git/config", "sub/.git/config"),
    *(
        "gcloud/application_default_credentials.json",
        "kaggle.json",
        ".git-credentials",
        ".pypirc",
        ".docker/config.json",
    ),
    *("huggingface/token", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", "service_account-1.json"),
    *(".streamlit/secrets.toml", "store.p12", ".pgpass", ".dockercfg", ".vault-token", "client_secret_1.json"),
]
HELD = {
    "deploy.txt": KEY,
    "server.pem": f"-----BEGIN CERTIFICATE-----\n{BODY}-----END CERTIFICATE-----\n{KEY.replace('OPENSSH ', '')}",
    "old.key": f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{BODY}",
    "robot.json": '{"type": "x", "private_key": "-----BEGIN PRIVATE KEY-----\\n' + BODY.strip() + '"}',
    "locked.json": rf'"-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: 0\r\n\r\n{BODY.strip()}"',
    "signing": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{BODY}",
    "old.asc": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion:\nComment: {'x' * 300}\n\n{BODY}",
    "putty": "PuTTY-User-Key-File-2: ssh-rsa\n",
    ".npmrc": "//registry.example/:_authToken=abc\n",
    "pip.conf": "[global]\nindex-url = https://me:word@pip.example/simple\n",
}
PLAIN = {
    "train.py": "open('.env')\n",
    ".env.example": "TOKEN=\n",
    "id_rsa.pub": "ssh-rsa AAAA\n",
    "server.crt": "-----BEGIN CERTIFICATE-----\nMIIB\n",
    "speaks_of_keys.py": 'MARK = "-----BEGIN RSA PRIVATE KEY-----"\nENV = ".env"\n',
    "secrets.py": "import os\n",
    "pip.ini": "[global]\nindex-url = https://pip.example/simple\n",
    "environment.yml": "name: x\n",
    "config/model.json": "{}\n",
}


def plant(folder, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture
def folder(tmp_path):
    """A folder with all of these files, and a .dockerignore that excludes nothing."""
    home = tmp_path / "code"
    plant(home, {**dict.fromkeys(NAMED, PLANTED), **HELD, **PLAIN, ".dockerignore": "\n"})
    return home


def sent(folder, choice=credentials.NO_CHOICE):
    """What a host receives from the folder: contents by path, and the whole stream as bytes."""
    data = b"".join(FolderStream(folder, folder_look.look_at(folder, choice).entries).read(lambda sent: None))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isreg()}
    return {name.removeprefix("files/"): text for name, text in files.items() if name.startswith("files/")}, data


@pytest.mark.holds("credentials-stay")
def test_no_planted_credential_is_sent_and_all_else_is(folder):
    files, data = sent(folder)
    assert set(files) == {*PLAIN, ".dockerignore"}
    for planted in (PLANTED, BODY.strip(), "abc", "me:word"):
        assert planted.encode() not in data


@pytest.mark.holds("reader-budget")
@pytest.mark.parametrize("part", ["Aa:  ", "Aa: \n", "Aa: x \\n", "Aa: -----BEGIN PRIVATE KEY-----\n", "\\n", " "])
def test_a_file_that_is_almost_a_private_key_is_searched_at_once(part):
    """A cloned folder may have it. The time for a header with many blanks would double with each blank."""
    text = "-----BEGIN PRIVATE KEY-----\n" + (part * (1 << 20))[: 1 << 20]
    with waiting.spending_little():
        assert not credentials.credential_in("notes.txt", text.encode(), {})


@pytest.mark.holds("credentials-stay")
def test_unsent_files_are_listed_once_with_the_option_that_sends_them(folder):
    listed = {entry.path: entry for entry in folder_look.look_at(folder).credentials}
    assert set(listed) == {*(credentials.credential_path(path) for path in NAMED), *HELD}
    assert {".git", "sub/.git", ".aws"} <= set(listed)
    sentence = left_out.describe([listed[".env"], listed["server.pem"]])
    assert sentence.startswith("not sent: .env, server.pem (a private key); --include .env ")
    assert "--include 'my keys/a.pem' " in left_out.describe([left_out.LeftOut("my keys/a.pem")])


def test_an_included_file_is_sent_without_other_credentials(folder):
    files, _ = sent(folder, SendChoice(frozenset({".env", ".aws/sso", "deploy.txt"})))
    assert set(files) == {*PLAIN, ".dockerignore", ".env", ".aws/sso/cache/x.json", "deploy.txt"}


@pytest.mark.parametrize("path", ["gone", "../out", ".aws/gone"])
def test_a_name_that_includes_nothing_is_refused(folder, path):
    with pytest.raises(UsageError, match="--include"):
        folder_look.look_at(folder, SendChoice(frozenset({path})))


@pytest.mark.holds("secret-source-stays")
@pytest.mark.parametrize("alias", ["plain", "link from outside", "hard link", "in an included folder"])
def test_the_file_of_a_secret_is_never_sent_under_any_name(folder, tmp_path, alias):
    source = folder / ".aws/token.txt" if alias == "in an included folder" else folder / "token.txt"
    source.write_text(PLANTED + "\n")
    given = source
    if alias == "link from outside":
        given = tmp_path / "link"
        given.symlink_to(source)
    elif alias == "hard link":
        given = tmp_path / "twin"
        os.link(source, given)
    name = str(source.relative_to(folder))
    choice = SendChoice(frozenset({name, ".aws"} if alias == "in an included folder" else {name}), {"TOKEN": given})
    files, _ = sent(folder, choice)
    assert name not in files
    (listed,) = [entry for entry in folder_look.look_at(folder, choice).credentials if entry.never]
    assert (listed.path, listed.why) == (name, "it holds the secret TOKEN")


@pytest.mark.holds("secret-source-stays")
def test_a_link_to_a_secrets_file_takes_its_name_along_and_not_its_content(folder, tmp_path):
    (tmp_path / "outside").write_text(PLANTED)
    (folder / "inside").symlink_to(tmp_path / "outside")
    _, data = sent(folder, SendChoice(sources={"TOKEN": tmp_path / "outside"}))
    assert PLANTED.encode() not in data


@pytest.mark.holds("secret-source-stays")
def test_a_file_that_holds_the_value_of_a_secret_stays_too(folder):
    (folder / "notes.md").write_text(f"the token is {PLANTED}-too.\n")
    files, data = sent(folder, SendChoice(values={"TOKEN": f"{PLANTED}-too", "SHORT": "{}"}))
    assert "notes.md" not in files
    assert PLANTED.encode() not in data


def test_a_script_that_holds_a_secret_is_refused_before_anything_is_asked(folder):
    (folder / "train.py").write_text(f"TOKEN = '{PLANTED}'\n")
    with pytest.raises(UsageError, match=r"train.py: Muster does not send it.*the value of TOKEN") as refused:
        folder_look.refuse_unsent(
            folder_look.look_at(folder, SendChoice(values={"TOKEN": PLANTED})), folder, "train.py"
        )
    assert PLANTED not in str(refused.value) + refused.value.hint


@pytest.mark.holds("secret-source-stays")
def test_the_choice_is_read_from_cluster_toml_and_flags(allowed, folder, tmp_path, monkeypatch):
    plant(folder, {"token.txt": f"{PLANTED}\n"})
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        '[[hosts]]\nname = "a"\n[job]\nfolder = "code"\ninclude = ["./id_rsa"]\n'
        'secrets = ["ABSENT", { name = "TOKEN", file = "code/token.txt" }]\n'
    )
    monkeypatch.delenv("ABSENT", raising=False)
    options = Options(cluster=str(cluster), include=(".env",))
    loaded = load_cluster(options)
    choice = send_choice_of(loaded)
    assert choice.include == {".env", "id_rsa"}
    assert {name: Path(path).name for name, path in choice.sources.items()} == {"TOKEN": "token.txt"}
    assert choice.values == {"TOKEN": PLANTED}
    assert PLANTED not in repr(choice)
    files, _ = sent(folder, choice)
    assert {".env", "id_rsa"} < set(files)
    assert "token.txt" not in files
    with pytest.raises(UsageError, match="--include"):
        load_cluster(Options(cluster=str(cluster), include=("../x",)))


def test_the_documentation_has_the_whole_list_of_credentials():
    page = (Path(__file__).resolve().parents[2] / "docs/explanation/sending.md").read_text()
    for pattern in (*credentials.FOLDERS, *credentials.FILES, *credentials.SETTINGS, *credentials.EXAMPLES):
        assert f"`{pattern}`" in page


@pytest.mark.holds("build-context")
def test_a_build_is_told_which_credentials_it_could_copy(folder):
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY . .\n")
    listed = {entry.path for entry in folder_look.exposed_credentials(dockerfile)}
    assert {".env", ".git", "deploy.txt"} <= listed
    assert not {*PLAIN, "Dockerfile"} & listed
    (folder / ".dockerignore").write_text("*\n!train.py\n")
    assert folder_look.exposed_credentials(dockerfile) == []
    (folder / "Dockerfile.dockerignore").write_text(".git\n")
    assert ".env" in {entry.path for entry in folder_look.exposed_credentials(dockerfile)}
    (folder / "Dockerfile.dockerignore").write_text("# Docker reads this one, and not the other\n")
    assert ".env" in {entry.path for entry in folder_look.exposed_credentials(dockerfile)}


@pytest.mark.holds("build-context")
def test_a_secrets_file_in_the_build_context_is_refused(folder):
    plant(folder, {"Dockerfile": "FROM scratch\n", "token.txt": PLANTED})
    choice = SendChoice(frozenset({"token.txt"}), {"TOKEN": folder / "token.txt"})
    with pytest.raises(UsageError, match=r"token.txt: the build could copy this file.*the secret TOKEN") as refused:
        folder_look.exposed_credentials(folder / "Dockerfile", choice)
    assert ".dockerignore" in refused.value.hint
    (folder / ".dockerignore").write_text("token.txt\n")
    folder_look.exposed_credentials(folder / "Dockerfile", SendChoice(sources=choice.sources))
