"""docs/explanation/security.md, line by line, on real servers and engines: the mark `holds` names the line.

One run serves most tests, on hosts whose user has no sudo. The tests look at it while it trains, and after its end.
"""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from deploy.door import session
from deploy.host import commands
from deploy.job.inventory import hosts_of_flag
from lab import waiting

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
IMAGE, SECRET = "muster-trainer:cpu", "sesame-4711"


class Run:
    """A run on two hosts of the rack: `fab` for it, and what the hosts show of it."""

    def __init__(self, rack):
        self.rack, self.hosts, self.id = rack, rack.hosts[:2], f"test-{uuid.uuid4().hex[:8]}"
        self.dir, self.container = HOME / "runs" / self.id, f"muster-{self.id}"
        self.environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config), "HUSH": SECRET}
        self.output = ""
        self.before = {host: self.listening(host) for host in self.hosts}

    def fab(self, task, *words, **more):
        line = [FAB, task, "--hosts", ",".join(self.hosts), *words]
        done = subprocess.run(
            line, cwd=HOME, env={**self.environment, **more}, capture_output=True, text=True, timeout=400
        )
        self.output += done.stdout + done.stderr
        return done

    def inspected(self):
        """All that the engines report about the run's containers, by host."""
        return {host: json.loads(self.rack.on(host, "docker", "inspect", self.container))[0] for host in self.hosts}

    def listening(self, host):
        """Listening TCP sockets of a host: port and process."""
        rows = [line.split() for line in self.rack.root(host, "ss", "-ltnpH").splitlines()]
        return {(row[3], row[5].split("pid=")[1].split(",")[0]) for row in rows if len(row) > 5}

    def ranks(self, host):
        """The process ids of the run's container, as the host sees them, with their user ids."""
        rows = self.rack.on(host, "docker", "top", self.container, "-eo", "pid,uid").splitlines()[1:]
        return dict(row.split() for row in rows)


def having(rack, host, variable):
    """The process ids on a host, as root sees them, that have this variable in their environment."""
    look = f"grep -laz '^{variable}$' /proc/[0-9]*/environ 2>/dev/null; true"
    return {path.split("/")[2] for path in rack.root(host, "sh", "-c", look).split()}


@pytest.fixture(scope="module")
def run(rack):
    """A training run with a secret, deployed by a user without sudo."""
    made = Run(rack)
    for host in made.hosts:
        rack.root(host, "mv", "/etc/sudoers.d/muster", "/root/sudoers.muster")
        rack.root(host, "touch", "/root/before")
    try:
        # The run writes no checkpoints, since the tests cannot search through files that come and go.
        trained = "--steps 1000000 --checkpoint-every 0"
        words = ("--run", made.id, "--image", IMAGE, "--secret", "HUSH", "--args", trained, "--detach")
        made.deployed = made.fab("deploy", *words)
        if made.deployed.returncode == 0:
            ready = f"grep -q step ~/.muster/runs/{made.id}/ranks/rank-*.jsonl"
            for host in made.hosts:
                waiting.until(lambda host=host: rack.ssh(host, ready).returncode == 0, "training", 120)
        yield made
    finally:
        made.fab("down", "--run", made.id)
        for host in made.hosts:
            rack.root(host, "mv", "/root/sudoers.muster", "/etc/sudoers.d/muster")
            rack.on(host, f"rm -rf ~/.muster/runs/{made.id}")
        shutil.rmtree(made.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def ended(run):
    """The same run, stopped and fetched."""
    assert run.fab("stop", "--run", run.id).returncode == 0
    run.fab("attach", "--run", run.id)
    fetched = run.fab("fetch", "--run", run.id)
    assert fetched.returncode == 0, fetched.stderr
    return run


@pytest.mark.holds("no-sudo")
def test_a_user_without_sudo_can_deploy(run):
    assert run.deployed.returncode == 0, run.deployed.stderr
    assert run.rack.ssh(run.hosts[0], "sudo -n true").returncode != 0


@pytest.mark.holds("unprivileged")
def test_containers_have_no_privileges(run):
    for seen in run.inspected().values():
        host = seen["HostConfig"]
        assert not host["Privileged"]
        assert not host["CapAdd"]
        assert host["SecurityOpt"] == ["no-new-privileges"]


@pytest.mark.holds("not-root")
def test_no_process_in_a_container_is_root(run):
    for host, seen in run.inspected().items():
        own = run.rack.on(host, "id", "-u")
        assert seen["Config"]["User"].split(":")[0] == own != "0"
        assert set(run.ranks(host).values()) == {own}


@pytest.mark.holds("no-devices")
def test_containers_get_no_device_on_a_host_without_gpus(run):
    for seen in run.inspected().values():
        assert not seen["HostConfig"]["Devices"]
        assert not seen["HostConfig"]["DeviceRequests"]


@pytest.mark.holds("mounts")
def test_containers_see_the_runs_folder_their_own_claim_and_nothing_else_of_the_host(run):
    for host, seen in run.inspected().items():
        folder = f"{run.rack.on(host, 'echo ~')}/.muster/runs/{run.id}"
        claim = run.rack.on(host, f"ls /var/tmp/muster-claims.*/*-{seen['Config']['Labels']['muster.claim']}.lock")
        mounts = sorted((mount["Source"], mount["Destination"]) for mount in seen["Mounts"])
        assert mounts == [(folder, "/muster/run"), (claim, "/muster/claim.lock")]


@pytest.mark.holds("host-network")
def test_containers_share_the_network_and_not_processes_or_memory(run):
    for seen in run.inspected().values():
        host = seen["HostConfig"]
        assert host["NetworkMode"] == "host"
        assert host["PidMode"] == ""
        assert host["IpcMode"] == "private"


@pytest.mark.holds("limits")
def test_a_run_cannot_take_all_of_a_hosts_memory_or_processes(run):
    for host, seen in run.inspected().items():
        limits = seen["HostConfig"]
        whole = 1024 * int(run.rack.on(host, "awk", "'/MemTotal/ {print $2}'", "/proc/meminfo"))
        assert 0 < limits["Memory"] < whole
        assert 0 < limits["PidsLimit"] <= 32768


@pytest.mark.holds("log-limits")
def test_consoles_cannot_fill_a_disk(run):
    for seen in run.inspected().values():
        assert seen["HostConfig"]["LogConfig"]["Config"] == {"max-file": "2", "max-size": "50m"}


@pytest.mark.holds("secret-in-container")
def test_the_ranks_have_the_secret_and_the_containers_configuration_does_not(run):
    for host, seen in run.inspected().items():
        assert SECRET not in json.dumps(seen)
        assert seen["Config"]["Labels"]["muster.secrets"] == "HUSH"
        holders = having(run.rack, host, f"HUSH={SECRET}")
        assert holders
        assert holders < set(run.ranks(host)), "torchrun and its ranks, not what starts them"


@pytest.mark.holds("arguments-are-public")
def test_arguments_can_be_read_by_everybody_on_the_host(run):
    assert "100000" in run.rack.on(run.hosts[0], "ps", "axww")
    assert all("100000" in seen["Config"]["Labels"]["muster.command"] for seen in run.inspected().values())


@pytest.mark.holds("secrets-nowhere")
def test_a_secret_is_on_no_command_line_and_in_no_label_during_the_run(run):
    for host, seen in run.inspected().items():
        assert SECRET not in json.dumps([seen["Config"]["Labels"], seen["Config"]["Cmd"], seen["Args"]])
        processes = run.rack.root(host, "ps", "axww")
        assert run.id in processes or "trainer" in processes
        assert SECRET not in processes
        assert run.rack.ssh(host, f"grep -r {SECRET} ~/.muster").returncode == 1
        assert run.rack.ssh(host, f"docker logs {run.container} 2>&1 | grep {SECRET}").returncode == 1


@pytest.mark.holds("meeting-address-alone")
@pytest.mark.holds("only-the-runs-ports")
def test_only_processes_of_the_run_listen(run):
    for host in run.hosts:
        new = run.listening(host) - run.before[host]
        assert {pid for _, pid in new} <= set(run.ranks(host)), new
        assert not [address for address, _ in new if address.startswith(("*", "0.0.0.0", "[::]"))]
    assert any(":29" in address for address, _ in run.listening(run.hosts[0]) - run.before[run.hosts[0]])


@pytest.mark.holds("secret-by-input")
def test_variables_that_arrive_incomplete_start_nothing_and_are_in_no_file(run, monkeypatch):
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(run.rack.ssh_config))
    with session.open_all(hosts_of_flag(run.hosts[0])) as opened:
        (host_session,) = opened.all().values()
        secret = uuid.uuid4().hex  # a run's figures may contain any short number
        folder, sent = f"{host_session.home}/runs/{run.id}-look", commands.base64_line(f"A={secret}\n".encode())
        # This stand-in for `docker run` prints its input and the files that contain it, and makes no container.
        look = ("sh", "-c", f"cat >&2; grep -rl {secret} {host_session.home} >&2; stat -c %a {folder} >&2; exit 7")
        done = host_session.run(commands.start(folder, "", look, "no-such-start"), input=sent + b"\n", check=False)
        assert done.err.splitlines() == [f"A={secret}", "700"]
        for cut in (b"", sent[:-1], sent, sent + b"c2VjcmV0"):
            assert host_session.run(commands.start(folder, "", look, "no-such-start"), input=cut, check=False).code == 1
        assert host_session.run(("sh", "-c", f"ls -d {folder}*"), check=False).out == ""


@pytest.mark.holds("no-agent-forwarding")
def test_an_agent_is_not_forwarded(run, monkeypatch, tmp_path):
    started = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    variables = dict(part.split("=", 1) for part in started.replace("\n", "").split("; ") if part.startswith("SSH_"))
    variables |= {"SSH_AGENT_PID": started.split("SSH_AGENT_PID=")[1].split(";")[0]}
    config = tmp_path / "ssh_config"
    config.write_text(f"ForwardAgent yes\nInclude {run.rack.ssh_config}\n")
    monkeypatch.setenv("SSH_AUTH_SOCK", variables["SSH_AUTH_SOCK"])
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(config))
    try:
        plain = subprocess.run(
            ["ssh", "-F", config, run.hosts[0], 'echo "$SSH_AUTH_SOCK"'], capture_output=True, text=True
        )
        assert plain.stdout.strip(), "OpenSSH forwards it, so the server would take it"
        with session.open_all(hosts_of_flag(run.hosts[0])) as opened:
            (host_session,) = opened.all().values()
            assert host_session.run(("sh", "-c", 'echo "$SSH_AUTH_SOCK"')).out.strip() == ""
    finally:
        subprocess.run(["ssh-agent", "-k"], env={**os.environ, **variables}, capture_output=True, check=True)


@pytest.mark.holds("host-keys")
def test_an_unknown_host_key_or_a_changed_one_is_refused(run, tmp_path):
    known = run.rack.ssh_config.with_name("known_hosts").read_text().splitlines()
    theirs = [line.split()[2] for line in known if "ssh-ed25519" in line]
    changed = [
        f"{line.split()[0]} ssh-ed25519 {theirs[1 - theirs.index(line.split()[2])]}"
        for line in known
        if "ssh-ed25519" in line and line.split()[2] in theirs[:2]
    ]
    for written, word in (("", "trust"), ("\n".join(changed) + "\n", "ssh-keygen -R")):
        (tmp_path / "known").write_text(written)
        config = run.rack.ssh_config.read_text()
        config = config.replace(str(run.rack.ssh_config.with_name("known_hosts")), str(tmp_path / "known"))
        (tmp_path / "config").write_text(config)
        words = ("--run", f"{run.id}-no", "--image", IMAGE, "--args", "--steps 1")
        done = run.fab("deploy", *words, MUSTER_SSH_CONFIG=str(tmp_path / "config"))
        assert done.returncode == 1
        assert word in done.stderr
        assert (tmp_path / "known").read_text() == written
    for host in run.hosts:
        assert run.rack.ssh(host, f"ls -d ~/.muster/runs/{run.id}-no").returncode != 0


@pytest.mark.holds("clean-end")
def test_nothing_of_an_ended_run_is_left(ended):
    for host in ended.hosts:
        assert not ended.rack.on(host, f"docker ps -aq --filter label=muster.run={ended.id}")
        assert not ended.rack.on(host, f"ls -d ~/.muster/runs/{ended.id}=* ~/.muster/lock-*[!p] 2>/dev/null; true")
        waiting.until(
            lambda host=host: not ended.rack.on(host, f"pgrep -f '[m]uster-{ended.id}'; true"), "followers to end"
        )
        assert not ended.listening(host) - ended.before[host]


@pytest.mark.holds("what-stays")
@pytest.mark.holds("runs-closed")
def test_only_the_owner_can_read_what_stays(ended):
    for host in ended.hosts:
        left = ended.rack.on(host, "ls -A ~/.muster").split()
        assert {name for name in left if not name.startswith("lock-")} <= {
            *("audit.log", "cache", "folders", "packages", "runs")
        }
        places = f"~/.muster ~/.muster/runs ~/.muster/runs/{ended.id} ~/.muster/audit.log"
        assert ended.rack.on(host, f"stat -c %a {places}").split() == ["700", "700", "700", "600"]
        assert ended.rack.on(host, f"ls ~/.muster/runs/{ended.id}/logs")


@pytest.mark.holds("secret-in-container")
def test_no_process_has_the_secret_once_the_run_has_ended(ended):
    assert not any(having(ended.rack, host, f"HUSH={SECRET}") for host in ended.hosts)


@pytest.mark.holds("secrets-nowhere")
def test_a_secret_is_in_nothing_that_stays_on_this_machine_or_the_hosts(ended):
    matches = subprocess.run(["grep", "-rl", SECRET, ended.dir], capture_output=True, text=True)
    assert matches.stdout == ""
    assert (ended.dir / "report.html").exists()
    assert SECRET not in ended.output
    for host in ended.hosts:
        assert ended.rack.ssh(host, f"grep -r {SECRET} ~/.muster").returncode == 1


@pytest.mark.holds("nothing-installed")
def test_no_package_service_or_timer_is_added(ended):
    for host in ended.hosts:
        changed = ("find", "/etc", "/usr", "/var/spool", "-newer", "/root/before", "-type", "f")
        assert not ended.rack.root(host, *changed)
        assert not ended.rack.on(host, "ps -u muster -o comm= | grep -v -e sshd -e sh -e ps -e grep; true")


@pytest.mark.holds("audit")
def test_the_audit_log_says_what_was_done_and_by_whom(ended):
    for host in ended.hosts:
        entries = [line for line in ended.rack.on(host, "cat", ".muster/audit.log").splitlines() if ended.id in line]
        assert f"started muster-{ended.id}" in entries[0]
        assert any("SIG" in line for line in entries)
        assert all(line.split()[1:3] == ["muster", "from"] for line in entries)


@pytest.mark.holds("unpacked-inside")
def test_a_link_that_leads_out_is_not_unpacked(ended):
    ended.rack.on(ended.hosts[0], f"ln -s /etc/passwd ~/.muster/runs/{ended.id}/evil")
    fetched = ended.fab("fetch", "--run", ended.id)
    assert fetched.returncode == 0, fetched.stderr
    assert f"{ended.hosts[0]}: not copied: './evil' is a link" in fetched.stderr
    assert not (ended.dir / "evil").is_symlink()
    ended.rack.on(ended.hosts[0], f"rm ~/.muster/runs/{ended.id}/evil")


@pytest.mark.holds("labelled-only")
def test_a_container_without_labels_is_not_touched(ended):
    host = ended.hosts[0]
    image = ended.rack.on(host, "docker image ls --quiet | head -n 1")
    made = ended.rack.on(host, "docker", "create", "--name", f"bystander-{ended.id}", image, "true")
    try:
        down = ended.fab("down")
        assert down.returncode == 0, down.stderr
        assert ended.rack.on(host, "docker", "inspect", "--format", "{{.Id}}", made) == made
    finally:
        ended.rack.on(host, "docker", "rm", made)
