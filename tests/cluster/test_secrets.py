"""Root searches a run's hosts for planted secrets: in files, layers, configurations, logs and arguments.

The two hosts have different image stores. tests/hostile/test_secrets.py covers the folder's layer.
"""

import os
import signal
import subprocess
import sys

import pytest

from lab import waiting
from tests.cluster.control import BASE, FAB, HOME, QUIET, Control, forever

LISTED, ACCOUNT = "sesame-4715-listed", '{"key": "sesame-4716-account"}\n'
HUSH, FILED, SHOWN = "sesame-4711-first\nsesame-4711-second", "sesame-4712-filed", "visible-4713"
DECOY = "decoy-4714"
SCRIPT = """
import hashlib, os, time
print("whole:", hashlib.sha256((os.environ["HUSH"] + os.environ["FILED"]).encode()).hexdigest(), flush=True)
print("file:", oct(os.stat("/run/secrets/account.json").st_mode), open("/run/secrets/account.json").read(), flush=True)
print("prints:", os.environ["HUSH"], os.environ["FILED"], os.environ["LISTED"], flush=True)
open("/proc/self/fd/2", "w").write("one " + os.environ["LISTED"] + " two\\n")
print("sees:", os.path.exists("token.txt"), os.path.exists(".env"), flush=True)
while not os.path.exists("/muster/run/end"):
    time.sleep(0.1)
"""
PLACES = "/home /root /tmp /var /run /etc /dev/shm"
# The patterns are in a file. Otherwise they would be on the command line of this search itself.
SEARCH = f"""
find {PLACES} -xdev -type f -cnewer /root/planted 2>/dev/null | xargs -r -d '\\n' grep -laF -f /root/planted 2>/dev/null
hits() {{ grep -qaF -f /root/planted && echo "$1"; }}
docker ps -aq | xargs -r docker inspect | hits "a container's configuration"
docker images -q | xargs -r docker inspect | hits "an image's configuration"
docker history --no-trunc muster-code:latest 2>/dev/null | hits "an image's history"
for one in $(docker ps -aq --filter label=muster.run); do docker logs "$one" 2>&1 | hits "the console of $one"; done
true
"""
WATCH = """
while [ -e /root/watch ]; do
    cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -aF -f /root/planted -f /root/shown >>/root/hits
    sleep 0.03
done
"""


class Planted(Control):
    """A run on two hosts with planted values: secrets from variables and files, and a variable that is not secret."""

    def __init__(self, rack, folder):
        super().__init__(rack)
        self.hosts, self.folder = [rack.hosts[0], rack.hosts[-1]], folder
        self.environment |= {"HUSH": HUSH}
        (folder / "train.py").write_text(SCRIPT)
        (folder / "token.txt").write_text(FILED)
        (folder / ".env").write_text(f"# settings\nexport LISTED='{LISTED}'\nEMPTY=\n")
        (folder.parent / "account.json").write_text(ACCOUNT)
        self.cluster = folder.parent / "cluster.toml"
        hosts = "".join(f'[[hosts]]\nname = "{host}"\n' for host in self.hosts)
        self.cluster.write_text(
            f'{hosts}[job]\nimage = "{BASE}"\nfolder = "{folder}"\n'
            'secrets = ["HUSH", { name = "FILED", file = "code/token.txt" },'
            '{ name = "account.json", file = "account.json", as_file = true }]\n'
            'env_file = "code/.env"\n'
            f'[job.environment]\nSHOWN = "{SHOWN}"\n'
        )
        for host in self.hosts:
            for name, text in (
                ("planted", f"{HUSH}\n{FILED}\n{LISTED}\nsesame-4716-account\n"),
                ("shown", f"{SHOWN}\n{DECOY}\n"),
            ):
                line = ["docker", "exec", "-i", rack.container(host), "sh", "-c", f"cat >/root/{name}"]
                subprocess.run(line, input=text, text=True, check=True)

    def line(self, task, *words, hosts=None):
        return [FAB, task, "--cluster", str(self.cluster), "--allow-folder", *words]

    def places(self):
        """Where the secrets are found on the hosts, outside the memory of processes."""
        return [(host, hit) for host in self.hosts for hit in self.rack.root(host, "sh", "-c", SEARCH).splitlines()]

    def holders(self):
        """The processes (host and pid) that have a secret in their environment."""
        look = "grep -laF -f /root/planted /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; true"
        return [(host, pid) for host in self.hosts for pid in self.rack.root(host, "sh", "-c", look).split()]

    def watched(self):
        """Start to watch the command lines of all users; the returned function ends this and returns what was seen."""
        looking = []
        for host in self.hosts:
            self.rack.root(host, "sh", "-c", ": >/root/hits; : >/root/watch")
            looking.append(subprocess.Popen(["docker", "exec", self.rack.container(host), "sh", "-c", WATCH]))

        def seen():
            for host in self.hosts:  # the watch must see this short process
                self.rack.root(host, "sh", "-c", "sleep 2", DECOY)
                self.rack.root(host, "rm", "/root/watch")
            for look in looking:
                look.wait(60)
            hits = [self.rack.root(host, "cat", "/root/hits").splitlines() for host in self.hosts]
            assert all(DECOY in hit for hit in hits)
            return [line for hit in hits for line in hit if line != DECOY]

        return seen

    def ended(self):
        look = ("docker", "inspect", "--format", "{{.State.Status}}", f"muster-{self.run}")
        return all(self.rack.on(host, *look) == "exited" for host in self.hosts)


@pytest.fixture
def run(rack, tmp_path):
    (tmp_path / "code").mkdir()
    made = Planted(rack, tmp_path / "code")
    yield made
    for host in made.hosts:
        rack.root(host, "rm", "-f", "/root/watch")
    made.clean()


@pytest.mark.holds("secrets-nowhere")
@pytest.mark.holds("variables-off-command-lines")
@pytest.mark.holds("secret-source-stays")
@pytest.mark.holds("secrets-masked")
def test_a_detached_run_exposes_no_secret_while_it_runs_when_it_ends_or_later(run):
    seen = run.watched()
    deployed = run.fab("deploy", "--run", run.run, "--script", "train.py", "--detach")
    assert deployed.returncode == 0, deployed.stderr
    assert "not sent: .env (it holds the secret" in deployed.stderr
    assert "token.txt (it holds the secret FILED" in deployed.stderr
    assert run.places() == []
    assert run.holders(), "the ranks have them"
    for host in run.hosts:
        run.rack.on(host, f"touch ~/.muster/runs/{run.run}/end")
    waiting.until(run.ended, "the end of the script")
    assert seen() == []
    console = run.rack.on(run.hosts[0], f"docker logs muster-{run.run} 2>&1")
    digest = subprocess.run(["sha256sum"], input=(HUSH + FILED).encode(), capture_output=True).stdout.decode()[:64]
    assert f"whole: {digest}" in console
    assert "sees: False False" in console
    assert "file: 0o100400 ***" in console.replace('{"key": "***"}', "***")
    assert "prints: *** *** ***" in console.replace("***\n***", "***")
    assert "one *** two" in console
    log = run.rack.on(run.hosts[0], f"cat ~/.muster/runs/{run.run}/logs/rank-0.log")
    assert "***" in log
    assert run.places() == run.holders() == []
    assert run.fab("down", "--run", run.run).returncode == 0
    assert run.places() == run.holders() == []
    here = subprocess.run(["grep", "-rlF", "sesame-47", run.dir], capture_output=True, text=True)
    assert here.stdout == ""


@pytest.mark.holds("secrets-nowhere")
def test_neither_a_killed_container_nor_down_leaves_a_secret(run):
    deployed = run.fab("deploy", "--run", run.run, "--script", "train.py", "--detach")
    assert deployed.returncode == 0, deployed.stderr
    assert run.holders(), "the ranks have them"
    for host in run.hosts:
        run.rack.on(host, f"docker kill muster-{run.run}")
    waiting.until(run.ended, "the end of the containers")
    assert run.places() == run.holders() == []
    assert run.fab("down", "--run", run.run).returncode == 0
    assert run.places() == run.holders() == []


@pytest.mark.holds("secret-again")
def test_a_host_that_reboots_waits_for_its_secrets_and_attach_hands_them_in(run):
    words = (*forever("--checkpoint-every 20"), "--detach")
    assert run.fab("deploy", "--run", run.run, *words).returncode == 0
    first = run.rack.container(run.hosts[0])
    trains = f"grep -q checkpoint ~/.muster/runs/{run.run}/ranks/rank-0.jsonl"
    waiting.until(lambda: run.rack.ssh(run.hosts[0], trains).returncode == 0, "a checkpoint", 90)
    subprocess.run(["docker", "restart", first], check=True, capture_output=True, timeout=90)
    waiting.until(lambda: run.rack.is_up(run.hosts[0]), "the host to be up", 90)

    def row():
        return next((row for row in run.rows("status") if row["host"] == run.hosts[0]), {})

    waiting.until(lambda: row().get("word") == "waits for its secrets", "status to say that it waits", 60)
    assert run.places() == []
    del run.environment["HUSH"]
    lacking = run.fab("attach", "--run", run.run)
    assert lacking.returncode == 1
    assert "waits for its secrets; secret HUSH: not in this shell's environment" in lacking.stderr
    run.environment["HUSH"] = HUSH
    following = run.background(run.line("attach", "--run", run.run), **QUIET)
    waiting.until(lambda: waiting.events(run.dir, 0, "resumed"), "the run to go on", 120)
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert following.wait(90) == 75
    assert run.places() == run.holders() == []
    assert run.traces() == []


STARTS = """
import os, sys
from deploy.host import commands as host_commands
from deploy.job.inventory import hosts_of_flag; from deploy.door import session
with session.open_all(hosts_of_flag(sys.argv[1])) as opened:
    (there,) = opened.all().values()
    label = ("--label", "muster.run=" + sys.argv[2], "--label", "muster.start=one", "--entrypoint", "sleep")
    command = ("docker", "run", "--detach", "--name", "muster-" + sys.argv[2], *label, sys.argv[3], "300")
    secrets = host_commands.base64_line(b"") + host_commands.base64_line(os.environ["HUSH"].encode())
    there.run(host_commands.start(there.home + "/runs/" + sys.argv[2], "", command, "one"), input=secrets)
"""


@pytest.mark.holds("secret-by-input")
def test_a_deploy_that_is_killed_while_it_hands_secrets_in_leaves_no_container(run):
    """The container's agent never takes the secrets, since `sleep` runs in its place."""
    host = run.hosts[0]
    assert run.fab("push").returncode == 0
    line = [sys.executable, "-c", STARTS, host, run.run, "muster-code:latest"]
    starts = subprocess.Popen(line, cwd=HOME, env={**run.environment, "PYTHONPATH": str(HOME)})
    try:
        waiting.until(run.containers, "the container", 30)
        waiting.until(lambda: "muster.trainer.node handover" in run.rack.root(host, "ps", "axww"), "the hand-in", 30)
    finally:
        os.kill(starts.pid, signal.SIGKILL)
        starts.wait()
    waiting.until(lambda: not run.containers(), "the container to be taken away", 30)
    run.rack.on(host, "echo sesame-4712-filed >/tmp/decoy")
    assert run.places() == [(host, "/tmp/decoy")], "what lies there is found"
    run.rack.on(host, "rm /tmp/decoy")
    assert run.places() == run.holders() == []
    assert run.traces() == []
