"""Names from --hosts, cluster.toml or a jump host that try to be an ssh option, or a command in the user's settings."""

import pytest

from deploy.core.errors import UsageError
from deploy.door import session
from deploy.job.cluster import from_file
from deploy.job.inventory import Host, hosts_of_flag

NAMES = [
    "-oProxyCommand=touch${IFS}{mark}",
    "-F{mark}",
    "a;touch {mark}",
    "a$(touch {mark})",
    "a`touch {mark}`",
    "a\ntouch {mark}",
    "a|touch\t{mark}",
    "a&touch {mark}&",
    "'a' && touch {mark}",
    '"; touch {mark}; "',
    "a%h",
    "%n",
    "a>{mark}",
    "a\x1b]0;x\x07",
    "a\u202eb",
    "a\0b",
    "a/../b",
    "../{mark}",
    "~",
    "*",
    "!a",
    "a b",
    "",
    "a#b",
    "a\\",
    "[a",
    "::1%$(touch {mark})",
    "fe80::1% -l",
]
PLACES = ["--hosts", "--hosts user", "address", "user", "gateway", "gateway user", "second gateway"]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """SSH settings of a careless user, which pass host names to shells. `mark` exists if a shell obeyed a name."""
    mark, config = tmp_path / "mark", tmp_path / "config"
    config.write_text(
        f'Match exec "echo %n %h %r >> {tmp_path}/asked"\n  User nobody\nHost *\n  HostName 127.0.0.1\n  Port 1\n'
        "  ProxyCommand sh -c 'exit %n %h %r'\n"
    )
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(config))
    monkeypatch.setattr("deploy.door.connection.TRIES", 1)
    return mark


def host(place, text):
    """A host with this text in this place, as the door to SSH receives it."""
    whole = {
        "address": {"address": text},
        "user": {"user": text},
        "gateway": {"gateway": text},
        "gateway user": {"gateway": f"{text}@door"},
        "second gateway": {"gateway": f"door,{text}"},
    }[place]
    return Host(**{"name": "a", "address": "a", **whole})


@pytest.mark.holds("ssh-names")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_could_do_something_reaches_no_ssh_and_no_shell(settings, tmp_path, name, place):
    text = name.replace("{mark}", str(settings))
    if place.startswith("--hosts"):
        flag = f"{text}@a" if place.endswith("user") else text
        with pytest.raises(UsageError):
            hosts_of_flag(flag)
    else:
        with pytest.raises(UsageError), session.open_all([host(place, text)]):
            pass
    assert not settings.exists()
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("place", ["address", "user", "gateway"])
@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_cluster_toml_refuses_such_a_name(tmp_path, name, place):
    text = name.replace("{mark}", "mark").encode("unicode_escape").decode().replace("\\x", "\\u00").replace('"', '\\"')
    file = tmp_path / "cluster.toml"
    file.write_text(f'[[hosts]]\nname = "a"\n{place} = "{text}"\n')
    with pytest.raises(UsageError, match=r"cluster\.toml"):
        from_file(file)


@pytest.mark.parametrize("name", ["a", "gpu-a.lab_2", "10.0.0.4", "::1", "fe80::1%eth0", "gpu..lab"])
def test_an_honest_name_gets_through(settings, tmp_path, name):
    with session.open_all([Host("a", name, user="me.you+x")]) as results:
        assert results.faults["a"].kind
    assert (tmp_path / "asked").read_text().split()[0] == name
