"""`muster deploy` on the rack, end to end, as a user types it, and when things go wrong."""

import signal
import subprocess
from dataclasses import replace

import pytest

from deploy.core.errors import DETACHED, USAGE
from deploy.engine import images
from deploy.send.image.archive import archive
from deploy.send.image.compression import GZIP
from deploy.send.image.model import base_of, run_image
from lab import waiting
from tests.cluster.control import BASE, FAB, HOME, forever


def test_a_users_own_script_runs_on_all_hosts_and_leaves_no_container(control):
    done = control.deploy("--folder", "examples", "--requirements", "no", "--script", "ddp.py --epochs 2")
    assert done.returncode == 0, done.stderr
    for rank, host in enumerate(control.hosts):
        assert f"rank {rank} of 2: epoch 2" in (control.dir / "logs" / f"{host}.log").read_text()
        assert waiting.lines(control.dir / "telemetry" / f"{host}.jsonl")[0]["memory_limit_bytes"] > 0
    assert control.outcome()["verdict"] == "done"
    page = (control.dir / "report.html").read_text()
    assert [name for name in ("Training", "The machines", "Last lines", "What ran") if f"<h2>{name}" not in page] == []
    waiting.until(lambda: not control.traces(), "the hosts to be clean")


def test_a_module_of_a_package_imports_its_neighbours_and_attach_knows_it(control, tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "words.py").write_text("WORD = 'from the package'\n")
    (package / "train.py").write_text("import sys\nfrom pkg.words import WORD\nprint(WORD, sys.argv[1:], flush=True)\n")
    done = control.deploy("--folder", str(tmp_path), "--script", "-m pkg.train --lr 3e-4", "--detach")
    assert done.returncode == 0, done.stderr
    (control.dir / "record.json").unlink()  # as if from another machine
    attached = control.fab("attach", "--run", control.run)
    assert attached.returncode == 0, attached.stderr
    assert "   pkg.train   " in attached.stderr
    for host in control.hosts:
        assert "from the package ['--lr', '3e-4']" in (control.dir / "logs" / f"{host}.log").read_text()


def test_a_push_that_reached_only_one_host_does_not_block_a_deploy(control, tmp_path):
    script = tmp_path / "train.py"
    for number, hosts in ((1, control.hosts), (2, control.hosts[:1])):
        script.write_text(f"print('version {number}')\n")
        pushed = control.fab("push", "--image", BASE, "--folder", str(tmp_path), hosts=hosts)
        assert pushed.returncode == 0, pushed.stderr
    script.write_text("print('version 3', flush=True)\n")
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py")
    assert done.returncode == 0, done.stderr
    for host in control.hosts:
        assert "version 3" in (control.dir / "logs" / f"{host}.log").read_text()


@pytest.fixture
def image(control):
    """made(*lines): build an image from the trainer's image and more lines of a Dockerfile."""
    name = f"muster-{control.run}:1"

    def made(*lines):
        text = "\n".join((f"FROM {BASE}", *lines, ""))
        subprocess.run(["docker", "build", "--quiet", "--tag", name, "-"], input=text, text=True, check=True)
        return name

    yield made
    subprocess.run(["docker", "rmi", "--force", name], check=True, capture_output=True)


def test_an_image_without_muster_runs_a_users_script(control, image):
    """Like a Debian or Ubuntu image with torch: it has `python3` but no `python`, no trainer, and the user root."""
    without = "rm -r /muster; for name in $(which -a python); do rm $name; done; ! command -v python"
    name = image("USER root", f"RUN {without}", "ENV PYTHONPATH=/app")
    done = control.fab(
        "deploy",
        "--run",
        control.run,
        "--image",
        name,
        "--folder",
        "examples",
        "--requirements",
        "no",
        "--script",
        "ddp.py --epochs 1",
    )
    assert done.returncode == 0, done.stderr
    for rank, host in enumerate(control.hosts):
        assert f"rank {rank} of 2: epoch 1" in (control.dir / "logs" / f"{host}.log").read_text()


def test_a_new_image_is_checked_before_anything_starts_and_never_judged_by_an_older_one(control, image, tmp_path):
    name = image("ENV GLOO_SOCKET_IFNAME=eth9")
    (tmp_path / "train.py").write_text("print('it runs', flush=True)\n")
    words = ("--run", control.run, "--image", name, "--folder", str(tmp_path), "--script", "train.py")
    for _ in range(2):  # while the image is new to the hosts, and once they have it
        refused = control.fab("deploy", *words)
        assert refused.returncode == 3, refused.stderr
        assert f"{control.hosts[1]} has no interface eth9" in refused.stderr
        assert not control.containers()
        assert not control.dir.exists()
    subprocess.run(["docker", "tag", BASE, name], check=True)
    done = control.fab("deploy", *words)
    assert done.returncode == 0, done.stderr


def test_an_image_name_without_its_layers_does_not_block_a_deploy(control, tmp_path):
    """Docker 26 reports a failed load, and the name shows all layers; Docker 28 reports nothing, and it shows none."""
    control.hosts = control.rack.hosts[-1:]
    folder, host = tmp_path / f"code-{control.run}", control.hosts[0]
    folder.mkdir()
    (folder / "train.py").write_text("print('it runs', flush=True)\n")
    control.fab("push", "--image", BASE)
    base = base_of(BASE, images.inspect(BASE))
    image = run_image(replace(base, layers=(*base.layers, f"sha256:{'0' * 64}")), f"muster-{folder.name}:latest")
    named = b"".join(archive(image, [], {}, GZIP).chunks())
    container = control.rack.container(host)
    subprocess.run(["docker", "exec", "-i", container, "docker", "load"], input=named, capture_output=True, timeout=60)
    done = control.deploy("--folder", str(folder), "--script", "train.py")
    assert done.returncode == 0, done.stderr
    assert "it runs" in (control.dir / "logs" / f"{host}.log").read_text()


def test_ctrl_c_leaves_the_run_and_stop_ends_it_with_a_checkpoint_that_fetch_brings_home(control):
    fab = control.start(*forever())
    waiting.until(lambda: control.step() >= 10, "steps to come home", 120)
    fab.send_signal(signal.SIGINT)
    assert fab.wait(60) == DETACHED
    assert len(control.containers()) == 2
    stopped = control.fab("stop", "--run", control.run)
    assert stopped.returncode == 0, stopped.stderr
    assert control.outcome()["verdict"] == "stopped"
    waiting.until(lambda: not control.traces(), "the hosts to be clean")
    fetched = control.fab("fetch", "--run", control.run)
    assert fetched.returncode == 0, fetched.stderr
    saved = list(control.dir.glob("checkpoints/step-*/state.pt"))
    assert saved
    assert {path.name for path in control.dir.glob("logs/rank-*.log")} == {"rank-0.log", "rank-1.log"}


def test_a_killed_control_side_leaves_the_run_going_and_attach_sees_its_end(control):
    fab = control.start(*forever())
    waiting.until(lambda: control.step() >= 10, "steps to come home", 120)
    fab.kill()
    fab.wait()
    before = control.step()
    assert len(control.containers()) == 2
    attached = control.background(control.line("attach", "--run", control.run))
    waiting.until(lambda: control.step() > before, "steps after the attach", 60)
    stopped = control.fab("stop", "--run", control.run)
    assert stopped.returncode == 0, stopped.stderr
    assert attached.wait(60) == 75
    assert control.outcome()["verdict"] == "stopped"
    waiting.until(lambda: not control.traces(), "the hosts to be clean")


def test_a_failed_script_is_reported_with_its_host_and_exit_code(control, tmp_path):
    (tmp_path / "train.py").write_text("import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
    done = control.deploy("--folder", str(tmp_path), "--script", "train.py")
    assert done.returncode == 1
    assert control.hosts[1] in done.stderr
    assert "exitcode  : 3" in (control.dir / "logs" / f"{control.hosts[1]}.log").read_text()
    waiting.until(lambda: not control.traces(), "the hosts to be clean")


def test_every_failing_host_is_named_and_the_good_one_is_left_clean(control):
    good = control.hosts[0]
    done = control.deploy("--args", "--steps 10", hosts=[good, "no-such-host.invalid", f"{control.hosts[1]}:2299"])
    assert done.returncode == 1
    assert "2 of 3 hosts failed" in done.stderr
    assert "no-such-host.invalid" in done.stderr
    assert "2299" in done.stderr
    assert not control.dir.exists()
    assert control.rack.on(good, f"ls -d ~/.muster/runs/{control.run} 2>/dev/null || echo none") == "none"
    assert not control.traces()


def test_if_one_node_cannot_start_the_others_are_removed(control):
    good, second = control.hosts
    refuses = f'case "$*" in *--detach*muster-{control.run}*) echo "no such device" >&2; exit 125;; esac'
    wrapper = f"printf '%s\\n' '#!/bin/sh' '{refuses}' 'exec /usr/bin/docker \"$@\"'"
    control.rack.root(second, "sh", "-c", f"{wrapper} >/usr/local/bin/docker; chmod 755 /usr/local/bin/docker")
    try:
        done = control.deploy("--args", "--steps 10")
        assert done.returncode == 1
        assert f"{second}: {second} was not started" in done.stderr
        assert "no such device" in done.stderr
        assert f"{control.run} started" in control.rack.on(good, "cat ~/.muster/audit.log")
        assert control.rack.on(good, f"ls -d ~/.muster/runs/{control.run} 2>/dev/null || echo none") == "none"
        assert not control.traces()
        assert not control.dir.exists()
    finally:
        control.rack.root(second, "rm", "/usr/local/bin/docker")


def test_a_dry_run_prints_every_command_and_does_nothing(control):
    done = control.fab(
        "deploy", "--image", BASE, "--folder", "examples", "--requirements", "no", "--script", "ddp.py", "--dry-run"
    )
    assert done.returncode == 0, done.stderr
    for host in control.hosts:
        assert f"{host}: start {host}" in done.stdout
    assert done.stdout.count("docker run --detach") == 2
    assert not control.traces()


def test_a_host_folder_is_mounted_as_asked_and_a_missing_one_is_not_made(control, tmp_path):
    script = """import os, pathlib
assert pathlib.Path("/data/words").read_text() == "ours"
try: pathlib.Path("/data/more").write_text("")
except OSError: pathlib.Path("/out/seen").write_text(os.environ["RANK"])
"""
    (tmp_path / "train.py").write_text(script)
    mounts = ("--mount", "/tmp/mounted:/data:ro", "--mount", "/tmp/mounted:/out")
    words = ("--folder", str(tmp_path), "--script", "train.py", *mounts)
    missing = control.deploy(*words)
    assert missing.returncode == 1
    assert missing.stderr.count("cannot mount /tmp/mounted") == 2
    for host in control.hosts:
        control.rack.on(host, "mkdir /tmp/mounted && printf ours >/tmp/mounted/words")
    try:
        foretold = control.deploy(*words, "--dry-run")
        assert foretold.stdout.count("--mount type=bind,source=/tmp/mounted,target=/data,readonly") == 2
        done = control.deploy(*words)
        assert done.returncode == 0, done.stderr
        assert [control.rack.on(host, "cat /tmp/mounted/seen") for host in control.hosts] == ["0", "1"]
    finally:
        for host in control.hosts:
            control.rack.on(host, "rm -r /tmp/mounted")


def test_hosts_before_the_task_are_refused_with_the_right_command(control):
    line = [FAB, "--hosts", ",".join(control.hosts), "deploy", "--run", control.run, "--args", "--steps 10"]
    done = subprocess.run(line, cwd=HOME, env=control.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "muster deploy --hosts a,b" in done.stderr
    assert not control.traces()


def test_a_cut_connection_is_opened_again_and_the_run_continues(control):
    fab = control.start(*forever())
    waiting.until(lambda: waiting.events(control.dir, 1, "step"), "steps of the second host to come home", 120)
    control.rack.root(control.hosts[1], "sh", "-c", "pgrep -u muster sshd | xargs kill -9")
    seen = len(waiting.events(control.dir, 1, "step"))
    waiting.until(
        lambda: len(waiting.events(control.dir, 1, "step")) > seen + 2, "the second host to be found again", 90
    )
    fab.send_signal(signal.SIGINT)
    assert fab.wait(60) == DETACHED
    assert control.fab("stop", "--run", control.run).returncode == 0
    waiting.until(lambda: not control.traces(), "the hosts to be clean")


def test_a_secret_reaches_the_ranks_and_can_be_read_nowhere_else(control, tmp_path):
    (tmp_path / "train.py").write_text("import os\nprint(len(os.environ['HUSH']), 'letters', flush=True)\n")
    tables = "".join(f'[[hosts]]\nname = "{host}"\n' for host in control.hosts)
    (tmp_path / "cluster.toml").write_text(tables + '[job]\nsecrets = ["HUSH"]\n')
    control.environment["HUSH"] = "sesame-4711"
    words = ("--cluster", str(tmp_path / "cluster.toml"), "--folder", str(tmp_path), "--script", "train.py", "--detach")
    refused = control.deploy(*words)
    assert (refused.returncode, control.traces()) == (USAGE, []), "a file's secret is the user's to allow"
    assert "secret HUSH from this shell" in refused.stderr
    done = control.deploy(*words, "--allow-folder")
    assert done.returncode == 0, done.stderr
    assert "secret HUSH from this shell" in done.stderr
    seen = "docker inspect muster-%s --format '{{json .Config.Labels}} {{json .Args}}'; grep -r . ~/.muster; ps ax"
    for host in control.hosts:
        shown = control.rack.on(host, seen % control.run)
        assert control.run in shown
        assert "sesame" not in shown
    attached = control.fab("attach", "--run", control.run)
    assert attached.returncode == 0, attached.stderr
    assert "11 letters" in (control.dir / "logs" / f"{control.hosts[0]}.log").read_text()
    assert "sesame" not in done.stderr + done.stdout
