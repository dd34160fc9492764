"""Two users share a host with GPUs: a script in one user's container can do nothing to the claims of the other.

The script attacks everything that a container can reach, as the container's user. In addition, a user of the host
without access to its engine tries the same outside a container.
"""

import pytest

from lab import waiting
from tests import fake_gpus
from tests.cluster.test_wait import User

# Each ATTACK line of the output is an attack that succeeded.
SCRIPT = """
import fcntl, glob, os, struct, time

def tried(name, act):
    try:
        act()
    except OSError:
        return
    print("ATTACK", name, flush=True)

if os.environ["LOCAL_RANK"] != "0":
    time.sleep(600)
folder = "/muster/claims"
others = [path for path in glob.glob(folder + "/*") if os.environ["MUSTER_RUN_ID"] not in open(path).read()]
print("SEES", os.listdir("/muster"), len(others), flush=True)
for path in [*others, folder, "/muster"]:
    tried("remove", lambda: os.unlink(path))
    tried("rename", lambda: os.rename(path, path + "-x"))
    tried("chmod", lambda: os.chmod(path, 0))
    tried("write", lambda: open(path, "r+").write("x"))
    tried("touch", lambda: os.utime(path, (1, 1)))
    tried("fifo", lambda: os.mkfifo(folder + "/claim-1-ff"))
    tried("squat", lambda: open(folder + "/run-1-ff", "w"))
    tried("link", lambda: os.symlink("/etc/passwd", folder + "/claim-2-ff"))
    tried("hard link", lambda: os.link(path, "/muster/run/kept"))
    tried("hard link to its own", lambda: os.link("/muster/claim.lock", folder + "/claim-3-ff"))
for own in ("/muster/claim.lock", "/muster/claim"):
    tried("unmount", lambda: os.unlink(own))
    tried("replace", lambda: os.rename(own, "/muster/run/claim"))
kept = []
for path in [*others, folder, "/muster/claim.lock", "/muster/claim"]:
    try:
        kept.append(os.open(path, os.O_RDONLY))
        fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.fcntl(kept[-1], fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
    except OSError:
        pass
try:
    os.chmod("/muster/claim.lock", 0)
    os.truncate("/muster/claim.lock", 100_000)
except OSError:
    pass
print("DONE", flush=True)
time.sleep(600)
"""
CALM = "import time\nprint('trains', flush=True)\ntime.sleep(600)\n"
# Run by a user of the host who may not use its engine.
ON_THE_HOST = """
cd /var/tmp; rm -rf muster-claims* 2>/dev/null
for folder in muster-claims*; do mv $folder x; chmod 0 $folder; ln -sfn /etc $folder; rm -f $folder/*; done 2>/dev/null
for file in muster-claims*/*; do ln $file kept-$(basename $file); : >$file; rm -f $file; mv $file x; done 2>/dev/null
mkdir -m 700 muster-claims muster-claims.0000000000000000 2>/dev/null
cd muster-claims.*[1-9a-f]* && seq -f claim-%.0f-ee 1 2000 | xargs touch
flock /var/tmp sleep 60 >/dev/null 2>&1 &
true
"""


@pytest.fixture
def host(rack):
    with fake_gpus.on_host(rack, rack.hosts[0]):
        yield rack.hosts[0]


@pytest.fixture
def users(rack, host, tmp_path):
    """alice, whose script attacks, and bob, who trains, as two control sides; mallory has only a login on the host."""
    for name, groups in (("bob", "docker"), ("mallory", "games")):
        make = (
            f"useradd --create-home --shell /bin/bash --groups {groups} {name} && cp -r /home/muster/.ssh /home/{name}/"
        )
        rack.root(host, "sh", "-c", f"{make} && chown -R {name}:{name} /home/{name}/.ssh")
    made = [User(rack), User(rack, "bob"), User(rack, "bob")]
    for each in made:
        each.hosts = [host]
    yield made
    for each in made:
        each.clean()
    # Remove mallory's remaining files and processes too.
    rack.root(host, "sh", "-c", "find /var/tmp -user mallory -delete; pkill -u mallory; true")
    for name in ("bob", "mallory"):
        rack.root(host, "userdel", "--force", "--remove", name)


def deploy(user, folder, script, *words):
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    words = ("--gpus", "2", "--folder", str(folder), "--script", "train.py", "--separate", "--detach", *words)
    done = user.deploy(*words)
    assert done.returncode == 0, done.stderr


def said(user, word):
    lines = user.fab("logs", "--run", user.run).stdout.splitlines()
    return [line.partition(word)[2].strip() for line in lines if word in line]


def given(user):
    """The GPUs that `muster gpus` shows as given to this user's run."""
    (host,) = [row for row in user.rows("gpus") if row["host"] == user.hosts[0]]
    return [gpu["index"] for gpu in host["gpus"] if any(user.run in words for words in gpu["given"])]


@pytest.mark.holds("claims-are-nobodys")
@pytest.mark.parametrize("wait", [(), ("--wait",)], ids=["now", "waited"])
def test_a_script_neither_changes_nor_keeps_a_claim_of_another_user(rack, host, users, tmp_path, wait):
    alice, bob, other = users
    deploy(bob, tmp_path / "bob", CALM)
    if wait:
        deploy(other, tmp_path / "bob", CALM)
    deploy(alice, tmp_path / "alice", SCRIPT, *wait)
    if wait:
        assert other.fab("down", "--run", other.run).returncode == 0
    waiting.until(lambda: said(alice, "DONE"), "the attacks to end")
    assert said(alice, "ATTACK") == []
    sees = said(alice, "SEES")[0]
    assert ("claims" in sees.split("]")[0]) == bool(wait), "only who waits sees what others have"
    assert given(bob) == [0, 1]
    assert given(alice) == [2, 3]
    # No other run gets the GPUs of alice and bob, and no run is kept waiting.
    refused = other.deploy("--gpus", "1", "--folder", str(tmp_path / "bob"), "--script", "train.py", "--separate")
    assert "0 free GPUs of 4" in refused.stderr
    assert bob.fab("down", "--run", bob.run).returncode == 0
    deploy(bob, tmp_path / "bob", CALM)
    assert given(bob) == [0, 1], "a claim ends with its run, whoever keeps its file locked"
    rack.root(host, "su", "mallory", "-c", ON_THE_HOST)
    assert given(bob) == [0, 1]
    assert given(alice) == [2, 3]
    about = rack.root(host, "sh", "-c", "stat -c '%U %a' /var/tmp/muster-claims.*[1-9a-f]*")
    assert set(about.splitlines()) == {"root 1777"}
    assert bob.fab("down", "--run", bob.run).returncode == 0
    deploy(bob, tmp_path / "bob", CALM, "--wait")
    waiting.until(lambda: given(bob) == [0, 1], "bob's GPUs")
    assert given(alice) == [2, 3]
