"""Other users may write anything where a machine's claims are: Muster neither hangs on it, runs it nor trusts it.

The scripts are those that hosts run, in a private /var/tmp; `as_user` runs a line as another user of the machine.
"""

import json
import pwd
import shlex
import subprocess
import sys

import pytest

from deploy.core.scripts import Scripts
from deploy.host import claims, commands, gpus
from deploy.host.commands import GPU_COLUMNS
from tests.started import started

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
SHARED, OURS = "/var/tmp/muster-claims", "/var/tmp/muster-claims.0123456789abcdef"
MADE = f"mkdir -m 1777 {OURS}"
# A private /var/tmp; `exec 9` and `flock` there act as on a machine with other users.
PRIVATE = 'mount -t tmpfs none /var/tmp && cd /var/tmp && eval "$1" && shift && "$@"; ls -d /var/tmp/*/ran 2>/dev/null'
# Runs as that user and keeps files locked: as an agent locks its own files, or as a user who may only read them can.
KEEP = """
import fcntl, os, struct, sys, time
os.setgid(int(sys.argv.pop(1)))
os.setuid(os.getgid())
flags = os.O_RDWR if sys.argv[1] == "own" else os.O_RDONLY
for path in sys.argv[2:]:
    file = os.open(path, flags)
    if sys.argv[1] == "flock":
        fcntl.flock(file, fcntl.LOCK_EX)
    kind = fcntl.F_WRLCK if sys.argv[1] == "own" else fcntl.F_RDLCK
    if os.path.isfile(path):
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
shell = os.getppid()
print("kept", flush=True)
while os.getppid() == shell:
    time.sleep(0.2)
"""


def answer(setup, *lines, argv=ARGV):
    """What claim.sh answers to these lines after `setup` has run."""
    line = ["unshare", "--mount", "sh", "-c", PRIVATE, "sh", setup or ":", *argv]
    text = "".join(f"{each}\n" for each in lines)
    # A file instead of a pipe: a process that stays in the background would keep a pipe open.
    with started(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asked:
        asked.stdin.write(text)
        asked.stdin.close()
        return asked.stdout.read().splitlines()


def living(setup):
    """The claims that a command sees after `setup` has run."""
    return gpus.parse(answer(setup, argv=commands.script("claims"))).claims


def as_user(number, line):
    return f"setpriv --reuid {number} --regid {number} --clear-groups sh -c {shlex.quote(line)}"


def keep(user, how, *paths):
    """A shell line that, in the background, keeps these files locked as that user."""
    line = shlex.join([sys.executable, "-c", KEEP, str(user), how, *paths])
    return f'kept=$(mktemp); {line} >"$kept" & while [ ! -s "$kept" ] && kill -0 $!; do sleep 0.05; done; rm "$kept"'


def written(name, folder=OURS, old=False, **more):
    """A shell line that writes a claim."""
    text = json.dumps({**ABOUT, "token": name.split("-")[2], **more}).replace('"', '\\"')
    line = f'printf "%s\\n" "{text}" >{folder}/{name}; : >{folder}/{name}.lock'
    return f"{line}; touch -d @1 {folder}/{name} {folder}/{name}.lock" if old else line


@pytest.fixture(autouse=True, scope="module")
def namespaces():
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace for us here")


def test_a_claim_is_noted_and_removed_when_its_input_ends():
    assert answer("", "look", json.dumps(ABOUT))[-1].startswith("noted claim-")
    assert "choose" in answer("", "look", "")
    left = answer("", argv=("sh", "-c", '"$@" <&0; ls -A /var/tmp', "sh", *ARGV))
    assert left == []


@pytest.mark.holds("claims-are-nobodys")
@pytest.mark.parametrize("name", [SHARED, OURS, "/var/tmp/muster-claims.0000000000000000"])
@pytest.mark.parametrize("made", ["ln -s /etc", "touch", "mkfifo", "mkdir -m 755", "mkdir -m 1777", "mkdir -m 000"])
def test_nothing_that_another_user_creates_first_blocks_a_claim(made, name):
    said = answer(as_user(1234, f"{made} {name}"), "look", json.dumps(ABOUT))
    assert said[-1].startswith("noted claim-")
    where = answer(f"{as_user(1234, f'{made} {name}')}; {MADE}1", argv=placed())
    assert where != [f"{name}/"], "a folder of a user is none for claims"


def places():
    """The shell functions that write a claim."""
    scripts = Scripts(claims.__file__)
    return f"{scripts.text('claims_function')}\n{scripts.text('claim_places_function')}"


def placed():
    """A command that prints where a new claim goes."""
    return ("sh", "-c", f'{places()}\nclaims_place && echo "$claims"')


@pytest.mark.holds("claims-are-nobodys")
def test_roots_claims_folder_is_used_and_one_that_others_could_change_is_not():
    assert answer(MADE, argv=placed()) == [f"{OURS}/"]
    assert answer(f"{MADE}; chmod 777 {OURS}", argv=placed()) == ["/var/tmp/muster-claims."]
    assert answer("chmod 777 /var/tmp", argv=placed()) == []
    assert answer("chown 1234 /var/tmp", argv=placed()) == []
    (line,) = answer("chmod 777 /var/tmp", "look", json.dumps(ABOUT))
    assert line == "error /var/tmp is not root's, or not sticky: look at it: ls -ld /var/tmp"


@pytest.mark.holds("claims-are-nobodys")
@pytest.mark.parametrize("squatted", ["run-5-bb", "run-5-bb.lock"])
def test_taking_the_name_of_a_claim_first_stops_no_run(squatted):
    about = json.dumps({**ABOUT, "token": "bb"})
    write = f"{places()}\nclaims_place; write_claim run-5-bb '{about}' '' && echo \"$written\""
    (written,) = answer(f"{MADE}; {as_user(1234, f'touch {OURS}/{squatted}')}", argv=("sh", "-c", write))
    assert written.startswith(f"{OURS}/run-5-bb-")
    taken = f"{MADE}; {as_user(1234, f'touch {OURS}/{squatted}')}; sh -c {shlex.quote(write)} >/dev/null"
    assert [(claim.user, claim.token) for claim in living(taken)] == [("root", "bb")]


@pytest.mark.holds("claims-are-nobodys")
def test_another_user_can_neither_remove_nor_rename_nor_replace_nor_close_a_claim():
    own = f"{MADE}; {as_user(1001, written('run-5-bb', state='runs'))}"
    attack = f"rm -rf {OURS}; mv {OURS} {SHARED}x; cd {OURS}; rm -f *; mv run-5-bb x; ln -sf /etc/passwd run-5-bb; "
    attack += (
        "chmod 000 . run-5-bb; : >run-5-bb; echo x >>run-5-bb; touch -d @1 run-5-bb; mkdir run-5-bb; mkfifo run-5-bb"
    )
    (claim,) = living(f"{own}; {as_user(1234, attack)} 2>/dev/null; true")
    assert (claim.gpus, claim.run) == (("GPU-1",), "train.py")


def shown(number):
    """A user's name on this machine: this number may belong to a real user here."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


@pytest.mark.holds("claims-are-nobodys")
def test_only_its_owner_keeps_a_claim_alive():
    dead = f"{MADE}; {as_user(1001, written('claim-5-bb', old=True))}"
    paths = f"{OURS}/claim-5-bb", f"{OURS}/claim-5-bb.lock"
    assert living(dead) == ()
    for how in ("flock", "read"):
        assert living(f"{dead}; {keep(1234, how, *paths)}") == ()
    for kept in paths:
        (claim,) = living(f"{dead}; {keep(1001, 'own', kept)}")
        assert claim.user == shown(1001)
    assert living(f"{dead}; rm {paths[1]}; {as_user(1234, f'touch {paths[1]}')}") == ()


@pytest.mark.holds("claims-are-nobodys")
def test_only_the_owners_next_command_removes_a_dead_claim():
    dead = f"{MADE}; {as_user(1001, written('claim-5-bb', old=True))}"
    for user, left in ((1234, ["claim-5-bb", "claim-5-bb.lock"]), (1001, [])):
        look = ("setpriv", "--reuid", str(user), "--clear-groups", *commands.script("claims"))
        assert answer(dead, argv=("sh", "-c", f'"$@"; ls {OURS}', "sh", *look)) == left


@pytest.mark.holds("claims-are-nobodys")
@pytest.mark.parametrize("then", ["@1", "2099-01-01"])
def test_a_wrong_clock_keeps_no_claim_alive(then):
    line = f"{MADE}; {as_user(1001, written('claim-5-bb'))}; touch -d {then} {OURS}/*"
    assert living(line) == ()


@pytest.mark.holds("claims-are-text")
def test_a_claim_belongs_to_the_owner_of_its_file_whatever_it_says():
    mine = f"{MADE}; {as_user(1234, written('claim-5-bb', user='root'))}"
    assert [claim.user for claim in living(mine)] == [shown(1234)]
    assert [claim.user for claim in living(f"{MADE}; {written('claim-5-bb', user='alice')}")] == ["root"]
    assert living(f"{MADE}; {as_user(1234, written('claim-5-bb', token='cc'))}") == ()


@pytest.mark.holds("claims-are-nobodys")
def test_a_hundred_thousand_files_of_one_user_hide_no_claim():
    fill = f"cd {OURS} && seq -f {OURS}/claim-%.0f-ee 1 100000 | xargs touch"
    setup = f"{MADE}; {as_user(1234, fill)}; {as_user(1001, written('claim-999999-bb'))}"
    (claim,) = (each for each in living(setup) if each.token == "bb")
    assert claim.gpus == ("GPU-1",)


@pytest.mark.holds("gpus-once")
def test_holding_the_machines_lock_delays_nobody_for_long_and_doubles_no_gpu():
    # The lock is held longer than any command waits for it.
    said = answer(keep(1234, "flock", "/var/tmp"), "look", json.dumps(ABOUT))
    assert said[-1].startswith("noted claim-")
    rival = as_user(1234, written("claim-5-bb", folder="/var/tmp", state="holds")).replace(
        "/claim-5", "/muster-claims.claim-5"
    )
    said = answer(f"{rival}; {keep(1234, 'flock', '/var/tmp')}", "look", json.dumps(ABOUT))
    (seen,) = gpus.parse(said[said.index("choose") + 1 : -1]).claims[:1]
    assert seen.token == "bb"
    assert seen.gpus == ("GPU-1",)


@pytest.mark.holds("claims-are-text")
@pytest.mark.parametrize(
    "setup",
    [
        "mkfifo claim-1-aa",
        "ln -s /etc/shadow claim-2-bb",
        "ln -s claim-3-cc claim-3-cc",
        "mkdir claim-4-dd",
        "head -c 9000000 /dev/zero >claim-5-ee",
        "touch 'claim-6-$(touch ran)`touch ran`;touch ran'",
        "echo '{\"token\": 7}' >claim-7-ff",
        f"echo '{json.dumps({**ABOUT, 'gpus': [chr(27) + '[2J']})}' >claim-8-aa",
        "touch 'claim-9-aa\n1000 9999999999 1 10 root//var/tmp/muster-claims.claim-1-cc'",
        "touch 'claim-9-aa root'",
    ],
    ids=["fifo", "link", "loop", "folder", "large", "name", "odd", "escape", "lines", "blank"],
)
def test_odd_files_of_another_user_block_no_claim(setup):
    said = answer(f"{MADE} && cd {OURS} && {{ {setup}\n}}; cd /", "look", json.dumps(ABOUT))
    assert said[-1].startswith("noted claim-")
    assert [claim.token for claim in gpus.parse(said).claims if claim.token != "aa" or claim.user != "root"] == []
