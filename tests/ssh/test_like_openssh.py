"""SSH settings mean the same for Muster as for OpenSSH, except for the list in docs/reference/ssh.md.

Each construct is given to OpenSSH's own client and to Muster, on the same server; the output shows which key logged in.
"""

import getpass
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.door import session
from deploy.job.inventory import Host
from lab.ports import free_port
from tests.ssh.conftest import SSHD, Server
from tests.ssh.constructs import ALL, IGNORED, IN, OUT, STRICTER

DOCS = Path(__file__).resolve().parents[2] / "docs/reference/ssh.md"
# Prints which key logged in, and where: sshd writes that to a file for the session (ExposeAuthInfo).
ASK = 'cat "$SSH_USER_AUTH"; set -- $SSH_CONNECTION; echo "$4 $(id -un)"'


def keygen(*words):
    """Run ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


class Setup:
    """A server, two jump hosts, keys of all sorts, an agent, and a folder for each construct."""

    def __init__(self, folder):
        self.folder, self.keys = folder, folder / "keys"
        self.keys.mkdir()
        self._make_keys()
        options = (
            "ExposeAuthInfo yes",
            f"TrustedUserCAKeys {self.keys}/authority.pub",
            "MaxAuthTries 20",
            "MaxStartups 100",
        )
        names = ("id", "second", "held", "rsa")
        authorized = "".join((self.keys / f"{name}.pub").read_text() for name in names)
        self.servers = [self._server(name, authorized, options) for name in ("node", "door", "middle")]
        node, door, middle = self.servers
        krl = [self.keys / "revoked.krl", node.folder / "key_ed25519.pub", node.folder / "key_rsa.pub"]
        keygen("-k", "-f", *krl)
        keygen("-k", "-f", self.keys / "others.krl", self.keys / "strange.pub")
        kinds = {kind: self._words(node.folder / f"key_{kind}.pub") for kind in ("ed25519", "rsa")}
        self.fields = {
            **kinds,
            "port": node.port,
            "door": door.port,
            "middle": middle.port,
            "dead": free_port(),
            "keys": self.keys,
            "me": getpass.getuser(),
            "agent": f"{folder}/agent",
            "strange": self._words(self.keys / "strange.pub"),
            "authority": self._words(self.keys / "authority.pub"),
            "jumps": door.known() + middle.known(),
            "all": node.known(),
        }
        self.agent = subprocess.Popen(["ssh-agent", "-D", "-a", self.fields["agent"]], stdout=subprocess.DEVNULL)
        environment = {**os.environ, "SSH_AUTH_SOCK": self.fields["agent"]}
        adding = ["ssh-add", "-q", self.keys / "held-open"]
        for _ in range(100):
            if not subprocess.run(adding, env=environment, capture_output=True, check=False).returncode:
                break

    def close(self):
        """Stop the agent and the servers."""
        self.agent.kill()
        self.agent.wait()
        for server in self.servers:
            server.stop()

    def place(self, construct):
        """The folder of a construct, with its settings written."""
        folder = self.folder / re.sub(r"\W", "-", construct.name)
        folder.mkdir(exist_ok=True)
        fields = {**self.fields, "x": folder}
        usual = ["Host node", "HostName 127.0.0.1", "Port {port}", "Host *", "ConnectTimeout 20"]
        usual += [f"UserKnownHostsFile {folder}/known_hosts", "GlobalKnownHostsFile none"]
        usual += [] if construct.bare else ["IdentityFile {keys}/id", "IdentitiesOnly yes"]
        (folder / "known_hosts").write_text((construct.known + "{jumps}").format(**fields))
        (folder / "config").write_text((construct.text + "\n" + "\n".join(usual) + "\n").format(**fields))
        for name, text in construct.files:
            (folder / name).write_text(text.format(**fields))
        return folder

    def environment(self, construct):
        """Variables that the settings may refer to."""
        variables = {
            "MUSTER_TEST_KEYS": str(self.keys),
            "MUSTER_TEST_AGENT": self.fields["agent"],
            "SHELL": "/bin/bash",
        }
        return {**variables, **({"SSH_AUTH_SOCK": self.fields["agent"]} if construct.agent else {})}

    def openssh(self, construct):
        """The result with OpenSSH's client: who logged in, or None."""
        config = self.place(construct) / "config"
        line = ["ssh", "-F", config, "-o", "BatchMode=yes", "node", ASK]
        variables = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        done = subprocess.run(
            line, env={**variables, **self.environment(construct)}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else None

    def _make_keys(self):
        for name in ("id", "second", "strange", "open", "held-open", "certified", "apart", "late", "authority"):
            keygen("-t", "ed25519", "-N", "", "-C", name, "-f", self.keys / name)
        keygen("-t", "rsa", "-b", "2048", "-N", "", "-f", self.keys / "rsa")
        for name, other in (("open", "id"), ("node.key", "id"), ("locked", "id"), ("held", "held-open")):
            shutil.copy(self.keys / other, self.keys / name)
            shutil.copy(self.keys / f"{other}.pub", self.keys / f"{name}.pub")
        (self.keys / "open").chmod(0o644)
        for name in ("locked", "held"):
            keygen("-p", "-P", "", "-N", "secret", "-f", self.keys / name)
        sign = ("-s", self.keys / "authority", "-I", "me", "-n", getpass.getuser())
        for name in ("certified", "apart", "held-open"):
            keygen(*sign, self.keys / f"{name}.pub")
        keygen(*sign, "-V", "20200101:20200102", self.keys / "late.pub")
        (self.keys / "apart-cert.pub").rename(self.keys / "apart.pub")
        (self.keys / "held-open-cert.pub").rename(self.keys / "held-apart.pub")

    def _server(self, name, authorized, options):
        # The authority also signs the host's key, for the constructs with @cert-authority.
        certificate = f"HostCertificate {self.folder}/{name}/key_ed25519-cert.pub"
        made = Server(self.folder, name, authorized, (*options, certificate))
        public = made.folder / "key_ed25519.pub"
        keygen("-s", self.keys / "authority", "-h", "-I", name, "-n", "127.0.0.1", public)
        made.stop()
        made.start()
        return made

    def _words(self, file):
        return " ".join(file.read_text().split()[:2])


@pytest.fixture(scope="module")
def setup(sshd, tmp_path_factory):
    """The servers and keys, created once for all tests."""
    assert SSHD
    if not shutil.which("ssh"):
        pytest.skip("no OpenSSH client here")
    made = Setup(tmp_path_factory.mktemp("like"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def rival(setup):
    """The result of OpenSSH's client for each construct, by name; all are run in parallel."""
    with ThreadPoolExecutor(8) as pool:
        return dict(zip([each.name for each in ALL], pool.map(setup.openssh, ALL), strict=True))


@pytest.fixture
def ours(setup, monkeypatch):
    """ours(construct) -> who logged in, or the error."""

    def ask(construct):
        folder = setup.place(construct)
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        for name, value in setup.environment(construct).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MUSTER_SSH_CONFIG", str(folder / "config"))
        monkeypatch.setattr("deploy.door.connection.TRIES", 2)
        try:
            with session.open_all([Host("node", "node")], ask_home=False) as results:
                return results.all()["node"].run(["sh", "-c", ASK]).out
        except DeployError as refused:
            return refused

    return ask


@pytest.mark.holds("ssh-settings")
@pytest.mark.parametrize("construct", ALL, ids=[each.name for each in ALL])
def test_muster_treats_settings_like_openssh_and_is_never_more_permissive(rival, ours, construct):
    theirs, got = rival[construct.name], ours(construct)
    if construct.outcome == IN:
        assert got == theirs is not None
    elif construct.outcome == OUT:
        assert theirs is None
        assert isinstance(got, DeployError), got
    else:
        assert construct.outcome in (STRICTER, IGNORED)
        refused, opened = (got, theirs) if construct.outcome == STRICTER else (theirs, got)
        assert isinstance(opened, str), "both refuse it: no difference"
        assert refused is None or (isinstance(refused, DeployError) and refused.hint)
        assert construct.word.lower() in DOCS.read_text().lower()


def test_constructs_are_many_and_unique():
    assert len(ALL) >= 40
    assert len({each.name for each in ALL}) == len(ALL)
