"""Rented boxes as providers deliver them: which logins Muster works with, and which it refuses by name."""

import pytest

from tests.cluster import boxes as rented
from tests.cluster.test_bootstrap import bare_image, docker  # noqa: F401
from tests.cluster.test_boxes import TRAIN, deploy

SHELLS = """
FROM muster-bare:test
RUN apt-get -qq update \\
    && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends fish tcsh >/dev/null
"""
BANNER = "echo 'echo Welcome to the box' >>/etc/{}; usermod --shell /usr/bin/{} ops"
TOOLS = " ".join(f"/{folder}/{name}" for folder in ("bin", "sbin", "usr/bin", "usr/sbin") for name in
                 ("ps", "ss", "pgrep", "pkill"))  # fmt: skip
HOME = "usermod --home '/home/my ops' --move-home ops"
OWN = "echo 'raise SystemExit(\"not ours\")' | tee /opt/own/json.py >/opt/own/torch.py"
VARIABLES = (
    "CDPATH=/tmp:/ PIP_USER=1 PIP_REQUIRE_VIRTUALENV=1 PYTHONPATH=/opt/own VIRTUAL_ENV=/opt/own LC_ALL=xx_XX.UTF-8 "
    "TMPDIR=/gone UV_OFFLINE=1 UV_CACHE_DIR=/proc GREP_OPTIONS=-v POSIXLY_CORRECT=1"
)
UMASK = "echo 'session optional pam_umask.so umask=0077' >>/etc/pam.d/sshd"
SET = f"mkdir -p /opt/own; {OWN}; echo 'SetEnv {VARIABLES}' >/etc/ssh/sshd_config.d/odd.conf"
AS_IT_IS = {
    "a banner, and the shell fish": BANNER.format("fish/config.fish", "fish"),
    "a banner, and the shell tcsh": BANNER.format("csh.cshrc", "tcsh"),
    "no ps, no ss, and Apptainer": f"rm -f {TOOLS}; ln -s /bin/false /usr/bin/apptainer",
    "a home with a blank, and files for its user alone": f"{HOME}; {UMASK}",
    "variables that other programs are set by": SET,
    "a home that cannot be written to": "chown root /home/ops; chmod 755 /home/ops; install -d -o ops /workspace",
}


@pytest.fixture(scope="module")
def image(request):
    request.getfixturevalue("bare_image")
    return docker("build", "--quiet", "--tag", "muster-bare:shells", "-", text=SHELLS)


@pytest.fixture
def control(tmp_path):
    """control(BOXES): the control side of a test."""
    return lambda up: rented.control_of(up, tmp_path / "code", train=TRAIN)


def trains(control):
    done = deploy(control, "train.py")
    assert done.returncode == 0, done.stderr
    assert "rank 0 sum 2.0" in done.stdout
    assert control.fab("fetch", "--run", control.run).returncode == 0
    assert (control.dir / "work/result.txt").exists()
    assert control.fab("down", "--run", control.run).returncode == 0
    return done.stderr


@pytest.mark.parametrize("kind", AS_IT_IS)
def test_a_box_with_an_unusual_login_trains(image, control, tmp_path, kind):
    with rented.started(2, image, tmp_path, first=AS_IT_IS[kind]) as boxes:
        words = trains(control(boxes))
        assert ": no container engine, so" in words
        if "cannot be written" in kind:
            assert "Muster's files go below /workspace" in words
            assert not boxes.on("box-1", "ls -A ~/.muster 2>/dev/null; true")
        assert "/dev/shm has 64 MiB free" in words
        assert "num_workers=0" in words


def test_root_at_a_mapped_port_trains_as_a_provider_shows_it(image, control, tmp_path):
    with rented.started(2, image, tmp_path, user="root") as boxes:
        made = control(boxes)
        of_key = f"Host *\n  IdentityFile {tmp_path}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {tmp_path}/known\n"
        (tmp_path / "own").write_text(of_key)
        made.environment["MUSTER_SSH_CONFIG"] = str(tmp_path / "own")
        ports = [docker("port", boxes.container(host), "22").rpartition(":")[2] for host in boxes.hosts]
        made.hosts = [f"root@127.0.0.1:{port}" for port in ports]
        trains(made)


def test_a_box_without_ip_is_refused_with_what_to_install(image, control, tmp_path):
    with rented.started(1, image, tmp_path, first="rm -f /bin/ip /sbin/ip /usr/bin/ip /usr/sbin/ip") as boxes:
        refused = deploy(control(boxes), "train.py", hosts=boxes.hosts)
        assert refused.returncode == 3, refused.stderr
        assert "apt-get install iproute2" in refused.stderr


CLOSED = "chown root /home/ops; chmod 755 /home/ops; mkdir -m 777 /workspace"


def test_a_workspace_of_another_user_is_not_used_as_a_home(image, control, tmp_path):
    with rented.started(1, image, tmp_path, first=CLOSED) as boxes:
        refused = deploy(control(boxes), "train.py", hosts=boxes.hosts)
        assert refused.returncode == 1, refused.stderr
        assert "cannot put the program that runs its nodes below ~/.muster" in refused.stderr
        assert not boxes.on("box-1", "ls -A /workspace")


REFUSED = {
    "noexec": (("--tmpfs", "/home/ops:noexec,uid=1000"), "its disk is mounted noexec"),
    "small": (("--tmpfs", "/home/ops:exec,uid=1000,size=500m"), "are free for muster-bare:"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_unusable_home_is_refused_with_a_command_that_mends_it(image, control, tmp_path, kind):
    options, words = REFUSED[kind]
    options += ("--tmpfs", "/workspace:exec,uid=1000")
    with rented.started(1, image, tmp_path, options=options) as boxes:
        made = control(boxes)
        made.hosts = boxes.hosts
        refused = deploy(made, "train.py")
        assert refused.returncode == 1, refused.stderr
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr
        line = next(line for line in refused.stderr.splitlines() if "ln -s /workspace" in line)
        boxes.on("box-1", line.partition("box-1: ")[2].partition(" (")[0])
        done = deploy(made, "train.py")
        assert done.returncode == 0, done.stderr
        assert made.fab("down", "--run", made.run).returncode == 0
