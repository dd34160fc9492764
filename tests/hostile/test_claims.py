"""Other users write what they like where the claims of a machine are: a claim neither hangs nor runs nor trusts it."""

import json
import subprocess

import pytest

from deploy.core.scripts import Scripts
from deploy.host import claims, gpus
from deploy.host.commands import GPU_COLUMNS

ARGV = Scripts(claims.__file__)("claim", "aa", "20", "5", GPU_COLUMNS)
ABOUT = {
    "token": "aa",
    "run": "train.py",
    "user": "alice",
    "control": "laptop",
    "gpus": ["GPU-1"],
    "waits": False,
    "whole": False,
}
SHARED = "/var/tmp/muster-claims"
# A /var/tmp of its own; `exec 9` and `flock` there are those of a machine with other users.
PRIVATE = 'mount -t tmpfs none /var/tmp && cd /var/tmp && eval "$1" && shift && "$@"; ls -d /var/tmp/*/ran 2>/dev/null'


def answer(setup, *lines):
    """What claim.sh answers to these lines, where `setup` was there before."""
    line = ["unshare", "--mount", "sh", "-c", PRIVATE, "sh", setup or ":", *ARGV]
    text = "".join(f"{each}\n" for each in lines)
    return subprocess.run(line, input=text, capture_output=True, text=True, timeout=60).stdout.splitlines()


@pytest.fixture(autouse=True, scope="module")
def namespaces():
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace for us here")


def test_a_claim_is_noted_and_gone_with_its_input():
    assert answer("", "look", json.dumps(ABOUT))[-1].startswith("noted claim-")
    assert "choose" in answer("", "look", "")


@pytest.mark.parametrize("setup", [f"ln -s /etc {SHARED}", f"touch {SHARED}", f"mkdir -m 755 {SHARED}"])
def test_a_folder_that_somebody_keeps_for_himself_is_refused(setup):
    wanted = [f"error {SHARED} is not a folder that all users share: look at it: ls -ld {SHARED}"]
    assert answer(setup, "look", json.dumps(ABOUT)) == wanted


@pytest.mark.holds("claims-are-text")
@pytest.mark.parametrize(
    "setup",
    [
        "mkfifo claim-1-aa",
        "ln -s /etc/shadow claim-2-bb",
        "ln -s claim-3-cc claim-3-cc",
        "mkdir claim-4-dd",
        "head -c 9000000 /dev/zero >claim-5-ee; flock -x claim-5-ee sleep 3 &",
        "touch 'claim-6-$(touch ran)`touch ran`;touch ran'",
        "echo '{\"token\": 7}' >claim-7-ff; flock -x claim-7-ff sleep 3 &",
        f"echo '{json.dumps({**ABOUT, 'gpus': [chr(27) + '[2J']})}' >claim-8-aa; flock -x claim-8-aa sleep 3 &",
    ],
    ids=["fifo", "link", "loop", "folder", "large", "name", "odd", "escape"],
)
def test_odd_files_of_another_user_hold_nothing_up(setup):
    said = answer(
        f"mkdir -m 1777 {SHARED} && cd {SHARED} && {{ {setup}\n}}; sleep 0.2; cd /", "look", json.dumps(ABOUT)
    )
    assert said[-1].startswith("noted claim-")
    assert gpus.parse(said).claims == ()
