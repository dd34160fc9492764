"""A folder that somebody else made: looking at it runs nothing, reads nothing outside it, and ends in time.

Each attack is a folder in which a test types `muster`. The test then checks three things: whether a file exists that
any command of the folder would create, whether any process opened files of a private folder next to it, and what
`muster` printed.
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pytest

import deploy.hosts.start.deploy
import deploy.hosts.start.push  # noqa: F401  (before the forks)
from deploy.commands import main
from tests.hostile.watch import Watch

HOME = Path(__file__).resolve().parents[2]
# `muster`, started as an installed one: without the current folder on Python's path.
MUSTER = "import deploy.commands.main as m; m.main()"
SECRET = "sesame-of-the-private-folder"
# Limits: wall-clock seconds, CPU seconds, and kB of memory above an idle `muster`.
MOST_S, MOST_CPU_S, MOST_MEMORY = 120, 20, 64 << 10


class Scene:
    """`folder`: the attack. `private`: the user's own, with a git repository. `ran`: a file that attacks create."""

    def __init__(self, top: Path) -> None:
        self.top, self.folder, self.private, self.ran = top, top / "clone", top / "private", top / "RAN"
        self.home = top / "home"
        for place in (self.folder, self.private, self.home / "config"):
            place.mkdir(parents=True)
        self.write("train.py", "print('hello')\n")
        (self.home / "ssh").write_text("")
        (self.private / "secret.txt").write_text(f"{SECRET}\n")
        (self.private / "requirements.txt").write_text(f"{SECRET}\n")
        (self.private / "pyproject.toml").write_text(f'[project]\nname = "{SECRET}"\nversion = "1"\n')
        self.repository(self.private)
        for name in (".git/refs", ".git/objects", ".git/info", ".git/logs"):
            (self.private / name).mkdir(exist_ok=True)

    @property
    def touch(self) -> str:
        """A command that must not run; it passes its input on."""
        return f"touch {self.ran}; cat"

    def write(self, name: str, text: str | bytes = "") -> Path:
        """Write a file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def git(self, *words: str, folder: Path | None = None) -> str:
        """Run git with its usual settings."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "init.defaultBranch=main")
        command = ["git", *who, "-C", str(folder or self.folder), *words]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**clean, "GIT_CONFIG_GLOBAL": os.devnull}
        ).stdout.strip()

    def repository(self, folder: Path | None = None) -> Path:
        """Make a folder a repository, with one commit of everything in it; returns its `.git`."""
        folder = folder or self.folder
        self.git("init", "-q", folder=folder)
        self.git("add", "--all", folder=folder)
        self.git("commit", "-q", "-m", "first", folder=folder)
        return folder / ".git"

    def sets(self, text: str, git: Path | None = None) -> None:
        """Add settings to the repository, and change a file that git would compare."""
        with ((git or self.folder / ".git") / "config").open("a") as file:
            file.write(text)
        self.write("train.py", "print('changed')\n")

    def muster(self, *words: str) -> tuple[int, str]:
        """Run `muster` in the folder, without the user's own settings; returns its exit code and output.

        It runs in a fork of this process, which has already imported it; `started` starts it as a shell does.
        """
        with TemporaryFile() as output:
            before = _memory()
            child = os.fork()
            if child == 0:
                self._be_muster(words, output.fileno())
            code, usage = _ended(child)
            assert usage.ru_utime + usage.ru_stime < MOST_CPU_S
            assert usage.ru_maxrss - before < MOST_MEMORY
            output.seek(0)
            return code, output.read().decode(errors="replace")

    def started(self, *words: str) -> tuple[int, str]:
        """As `muster`, but as a new Python process."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", MUSTER, *words],
            cwd=self.folder,
            env={**self._environment, "PYTHONPATH": str(HOME)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MOST_S,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    @property
    def _environment(self) -> dict[str, str]:
        return {
            # Some users have an empty entry, or one for the current folder, in their PATH.
            "PATH": f".::{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MUSTER_SSH_CONFIG": str(self.home / "ssh"),
            "SECRET_OF_SHELL": SECRET,
        }

    def _be_muster(self, words: Sequence[str], output: int) -> None:
        code = 99
        try:
            for number in (1, 2):
                os.dup2(output, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(self.folder)
            own = self._environment
            os.environ.clear()
            os.environ.update(own)
            sys.stdout = open(1, "w", errors="surrogateescape", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
            sys.argv = ["muster", *words]
            main.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 98
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _memory() -> int:
    """The memory of this process, in kB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


def _ended(child: int) -> tuple[int, resource.struct_rusage]:
    """The exit code of a child and the resources it used; the test fails after MOST_S seconds."""
    end = time.monotonic() + MOST_S
    while time.monotonic() < end:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail(f"it still runs after {MOST_S} s")


ATTACKS = {}


def attack(make):
    """Register an attack: `make` gets a Scene, and may return words that the output must contain."""
    ATTACKS[make.__name__] = make
    return make


# Repositories with settings that start programs.


def _filtered(scene, settings):
    scene.write(".gitattributes", "* filter=x diff=x\n")
    scene.repository()
    scene.sets(settings)


@attack
def a_bare_repository_within_a_clone_has_a_filter(scene):
    scene.repository()
    inner = scene.top / "inner"
    inner.mkdir()
    (inner / "train.py").write_text("print('hello')\n")
    (inner / ".gitattributes").write_text("* filter=x\n")
    made = scene.repository(inner)
    for name in ("HEAD", "objects", "refs", "index"):
        os.rename(made / name, scene.folder / name)
    scene.write(".gitattributes", "* filter=x\n")
    scene.write(
        "config",
        f'[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n[filter "x"]\nclean = "{scene.touch}"\n',
    )
    scene.write("train.py", "print('changed')\n")


@attack
def an_archive_with_a_repository_has_a_clean_filter(scene):
    _filtered(scene, f'[filter "x"]\nclean = "{scene.touch}"\nsmudge = "{scene.touch}"\n')


@attack
def a_filter_is_a_process(scene):
    _filtered(scene, f'[filter "x"]\nprocess = "{scene.touch}"\nrequired = true\n')


@attack
def a_monitor_of_the_file_system(scene):
    _filtered(scene, f'[core]\nfsmonitor = "{scene.touch}"\nuntrackedCache = true\n')


@attack
def hooks(scene):
    git = scene.repository()
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout"):
        for place in (git / "hooks", scene.folder / "hooks"):
            place.mkdir(exist_ok=True)
            (place / name).write_text(f"#!/bin/sh\n{scene.touch}\n")
            (place / name).chmod(0o755)
    scene.sets("[core]\nhooksPath = hooks\n")


@attack
def another_program_for_diffs(scene):
    _filtered(
        scene,
        f'[diff]\nexternal = "{scene.touch}"\n[diff "x"]\ntextconv = "{scene.touch}"\ncommand = "{scene.touch}"\n',
    )


@attack
def settings_that_are_included(scene):
    scene.write("more", f'[filter "x"]\nclean = "{scene.touch}"\n')
    _filtered(
        scene,
        f"[include]\npath = ../more\npath = {scene.private}/secret.txt\n"
        f'[includeIf "gitdir:**"]\npath = ../more\n[includeIf "hasconfig:remote.*.url:**"]\npath = ../more\n',
    )


@attack
def every_other_program_that_git_starts(scene):
    _filtered(
        scene,
        "".join(
            f'[{section}]\n{name} = "{scene.touch}"\n'
            for section, name in (
                *(("core", "pager"), ("core", "sshCommand"), ("core", "editor"), ("core", "askPass")),
                *(("gpg", "program"), ("credential", "helper"), ("pager", "diff"), ("core", "alternateRefsCommand")),
                *(("alias", "ls-files"), ("alias", "diff"), ("uploadpack", "packObjectsHook"), ("trailer", "command")),
            )
        ),
    )


@attack
def objects_that_git_would_fetch_when_it_misses_them(scene):
    git = scene.repository()
    blob = scene.git("rev-parse", "HEAD:train.py")
    (git / "objects" / blob[:2] / blob[2:]).unlink()
    scene.sets(
        f'[extensions]\npartialClone = origin\n[remote "origin"]\nurl = "ext::sh -c \\"{scene.touch}\\""\n'
        "promisor = true\n[protocol]\nallow = always\n"
    )


@attack
def a_repository_within_the_folder_has_a_filter(scene):
    scene.repository()
    inner = scene.folder / "third"
    inner.mkdir()
    (inner / "lib.py").write_text("1\n")
    (inner / ".gitattributes").write_text("* filter=x\n")
    git = scene.repository(inner)
    scene.git("add", "third")
    scene.git("commit", "-q", "-m", "with it")
    scene.sets(f'[filter "x"]\nclean = "{scene.touch}"\n[core]\nfsmonitor = "{scene.touch}"\n', git)
    (inner / "lib.py").write_text("2\n")


# Repositories that point to other places.


@attack
def the_work_tree_is_elsewhere(scene):
    scene.repository()
    scene.sets(f"[core]\nworktree = {scene.private}\n")


@attack
def the_git_file_leads_to_another_repository(scene):
    scene.write(".git", f"gitdir: {scene.private}/.git\n")
    return "not read"


@attack
def the_git_folder_is_a_link(scene):
    (scene.folder / ".git").symlink_to(scene.private / ".git")
    return "not read"


@attack
def the_common_folder_is_elsewhere(scene):
    (scene.repository() / "commondir").write_text(f"{scene.private}/.git\n")
    return "not read"


@attack
def a_work_tree_that_the_other_repository_does_not_know(scene):
    own = scene.folder / "git"
    own.mkdir()
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text(f"{scene.private}/.git\n")
    (own / "gitdir").write_text(f"{scene.folder}/.git\n")
    scene.write(".git", "gitdir: git\n")
    return "not read"


@attack
def objects_are_elsewhere(scene):
    git = scene.repository()
    (git / "objects/info").mkdir(exist_ok=True)
    (git / "objects/info/alternates").write_text(f"{scene.private}/.git/objects\n")
    (git / "refs/heads/main").write_text((scene.private / ".git/refs/heads/main").read_text())


@attack
def parts_of_the_repository_are_links(scene):
    git = scene.repository()
    for name in ("index", "packed-refs", "info/exclude", "refs/heads/main", "config"):
        (git / name).unlink(missing_ok=True)
        (git / name).symlink_to(scene.private / ".git" / name)


@attack
def objects_are_links(scene):
    git = scene.repository()
    for path in (scene.private / ".git/objects").iterdir():
        if not (git / "objects" / path.name).exists():
            (git / "objects" / path.name).symlink_to(path)
    (git / "refs/heads/main").write_text((scene.private / ".git/refs/heads/main").read_text())


@attack
def a_submodule_leads_to_another_repository(scene):
    scene.repository()
    scene.write("third/lib.py", "1\n")
    scene.write("third/.git", f"gitdir: {scene.private}/.git\n")
    return "not read"


@attack
def a_repository_lies_where_a_file_was(scene):
    scene.write("third", "1\n")
    scene.repository()
    (scene.folder / "third").unlink()
    scene.write("third/lib.py", "1\n")
    scene.write("third/.git", f"gitdir: {scene.private}/.git\n")
    return "not read"


@attack
def attributes_below_are_a_pipe_and_a_link(scene):
    for name in ("a", "b"):
        scene.write(f"{name}/x.py", "1\n")
    scene.repository()
    scene.write("a/x.py", "2\n")
    os.mkfifo(scene.folder / "a/.gitattributes")
    (scene.folder / "b/.gitattributes").symlink_to(scene.private / "secret.txt")


@attack
def attributes_that_change_what_is_compared(scene):
    scene.repository()
    scene.write(".gitattributes", "* working-tree-encoding=UTF-16 text eol=crlf ident diff=python merge=x\n")
    scene.sets(f'[merge "x"]\ndriver = "{scene.touch}"\n[diff "python"]\ntextconv = "{scene.touch}"\n')


@attack
def very_many_repositories(scene):
    for number in range(400):
        for name in ("objects", "refs"):
            (scene.folder / f"r{number}/.git" / name).mkdir(parents=True)
        scene.write(f"r{number}/.git/HEAD", "ref: refs/heads/main\n")
    return "more than 300 git repositories"


@attack
def an_index_names_paths_outside(scene):
    git = scene.repository()
    path = b"../private/secret.txt"
    entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + bytes(20) + struct.pack(">H", len(path)) + path
    entry += bytes(8 - len(entry) % 8)
    (git / "index").write_bytes(struct.pack(">4sII", b"DIRC", 2, 1) + entry + bytes(20))
    return "not a path in a folder"


@attack
def an_index_has_a_file_below_a_link(scene):
    scene.write("data/secret.txt", "mine\n")
    scene.repository()
    (scene.folder / "data/secret.txt").unlink()
    (scene.folder / "data").rmdir()
    (scene.folder / "data").symlink_to(scene.private)


@attack
def an_index_claims_four_milliards_of_files(scene):
    git = scene.repository()
    (git / "index").write_bytes(struct.pack(">4sII", b"DIRC", 4, 2**32 - 1) + bytes(1 << 16))


@attack
def an_index_of_very_many_paths(scene):
    git = scene.repository()
    entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + bytes(20) + struct.pack(">H", 4)
    names = (b"\x04%04d\0" % (number % 10_000) for number in range(290_000))
    rows = b"".join(entry + b"".join([b"\0" if not number else b"", name]) if number else entry + b"\0" + name[1:]
                    for number, name in enumerate(names))  # fmt: skip
    (git / "index").write_bytes(struct.pack(">4sII", b"DIRC", 4, 290_000) + rows + bytes(20))


@attack
def files_of_rules_are_elsewhere(scene):
    git = scene.repository()
    scene.sets(f"[core]\nexcludesFile = {scene.private}/secret.txt\nattributesFile = {scene.private}/secret.txt\n", git)
    for name in (".gitignore", ".gitattributes", ".gitmodules", ".mailmap"):
        (scene.folder / name).symlink_to(scene.private / "secret.txt")


@attack
def a_dockerignore_is_a_link(scene):
    (scene.folder / ".dockerignore").symlink_to(scene.private / "secret.txt")
    return "leads outside"


@attack
def runs_is_a_link(scene):
    (scene.folder / "runs").symlink_to(scene.private)
    (scene.folder / "data").symlink_to(scene.private)


# Pipes and links instead of files, and files that are far too large or too many.


@attack
def pipes_in_the_place_of_files(scene):
    git = scene.repository()
    for name in (".gitignore", ".gitattributes", ".env", "pyproject.toml", "sub.py", "uv.toml"):
        os.mkfifo(scene.folder / name)
    for path in (git / "index", git / "info/exclude", git / "packed-refs", git / "config"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)


@attack
def a_pipe_is_the_head_of_the_repository(scene):
    git = scene.repository()
    for name in ("HEAD", "refs/heads/main"):
        (git / name).unlink()
        os.mkfifo(git / name)


@attack
def a_pipe_is_a_dockerignore(scene):
    os.mkfifo(scene.folder / ".dockerignore")
    return "not a regular file"


@attack
def a_file_of_a_terabyte(scene):
    with scene.write("weights.bin").open("r+b") as file:
        file.truncate(1 << 40)
    return "too much to send"


@attack
def rules_that_match_in_very_many_ways(scene):
    scene.write(
        ".gitignore", "**/**/**/**/**/x\n" + "*a*a*a*a*a*a*a*a*a*a*a*a*b\n" * 50 + "[a-z]*[a-z]*[a-z]*[a-z]*0\n"
    )
    for number in range(300):
        scene.write(f"a{number}/{'a' * 200}", "1")


@attack
def rules_for_docker_that_match_in_very_many_ways(scene):
    scene.write(".dockerignore", "**/**/**/**/x\n" + "**/*a*a*a*a*a*a*a*a*a*b\n" * 50 + "!**/*a*a*a*a*a*c\n")
    for number in range(300):
        scene.write(f"a{number}/{'a' * 200}", "1")


@attack
def very_many_rules(scene):
    scene.write(".gitignore", "".join(f"*.{number}\n" for number in range(100_000)))
    return "lines with wildcards"


@attack
def as_many_rules_and_names_as_are_taken(scene):
    scene.write(".gitignore", "".join(f"*a*{number}*b\n" for number in range(2000)))
    for number in range(200):
        scene.write(f"d{number % 30}/{'a1' * 50}{number}")


@attack
def a_script_as_large_as_is_read(scene):
    scene.write("train.py", "import torch\nx = (" + "a," * 125_000 + ")\n")


@attack
def a_script_that_is_nested_deeply(scene):
    scene.write("train.py", "import torch\nx = " + "-" * 100_000 + "1\ny = " + "(" * 5000 + ")" * 5000 + "\n")


@attack
def a_script_of_one_endless_sum(scene):
    scene.write("train.py", "import torch\nif " + "+".join(["environ"] * 20_000) + ":\n    pass\n")


@attack
def names_that_act_on_a_terminal(scene):
    scene.repository()
    for name in (b"new\nline.py", b"\x1b[2J\x1b]0;x\x07.py", b"\xff\xfe.py", "\u202eyp.x".encode(), b"-rf", b"$(id)"):
        Path(os.fsdecode(os.fsencode(scene.folder) + b"/" + name)).write_text("1\n")
    os.mkfifo(os.fsdecode(os.fsencode(scene.folder) + b"/\x1b[2Jpipe\xff"))


@attack
def links_in_circles(scene):
    for name, target in (
        ("a", "b"),
        ("b", "a"),
        ("self", "self"),
        ("up", "."),
        ("requirements.txt", "requirements.txt"),
    ):
        (scene.folder / name).symlink_to(target)


# Files that declare packages.


def _needs(scene, text, *expected):
    scene.write("requirements.txt", text)
    return expected[0] if expected else "requirements.txt:1"


LINES = {
    "another_list": "-r {private}/requirements.txt\n",
    "another_list_above": "-r ../private/requirements.txt\n",
    "another_list_without_a_blank": "-r../private/requirements.txt\n",
    "a_list_of_limits": "-c {private}/requirements.txt\n",
    "an_editable_package": "-e ../private\n",
    "a_package_by_its_address": "x @ file://{private}\n",
    "a_package_by_a_quoted_address": "x @ file://{quoted}\n",
    "a_package_by_host": "x @ file://localhost{private}\n",
    "a_package_by_a_short_address": "x @ file:../private\n",
    "a_package_without_dots": "sub/../../private\n",
    "a_wheel": "../private/x-1-py3-none-any.whl\n",
    "a_line_in_two": "-r \\\n{private}/requirements.txt\n",
    "a_line_in_three": "x \\\n @ file:\\\n//{private}\n",
    "a_line_with_options": "x @ file://{private} --hash=sha256:00\n",
    "links": "--find-links {private}\n",
    "links_by_address": "-f file://{private}\n",
    "an_index_here": "--index-url file://{private}\n",
    "a_variable": "--extra-index-url https://127.0.0.1:9/${{SECRET_OF_SHELL}}/simple\n",
    "a_repository_here": "x @ git+file://{private}\n",
    "a_repository_by_path": "git+{private}/.git\n",
    "a_repository_by_a_program": "git+ext::sh -c touch% {ran}\n",
    "a_repository_of_an_option": "x @ git+ssh://-oProxyCommand=touch%20{ran}/x\n",
    "a_list_elsewhere": "-r https://127.0.0.1:9/requirements.txt\n",
    "an_option_nobody_knows": "--config-settings={private}/secret.txt\n",
    "another_home": "-r ~/private/requirements.txt\n",
    "utf16": "utf16:-r {private}/requirements.txt\n",
    "another_end_of_a_line": "six\u2028-r {private}/requirements.txt\n",
    "a_null": "-r {private}/requirements.txt\0.txt\n",
}


def _line(name, line):
    def make(scene):
        text = line.format(private=scene.private, ran=scene.ran, quoted=str(scene.private).replace("p", "%70"))
        if text.startswith("utf16:"):
            scene.write("requirements.txt", text.removeprefix("utf16:").encode("utf-16"))
            return "requirements.txt:1"
        return _needs(scene, text)

    make.__name__ = f"requirements_name_{name}"
    attack(make)


for _name, _text in LINES.items():
    _line(_name, _text)


@attack
def requirements_are_a_link(scene):
    (scene.folder / "requirements.txt").symlink_to(scene.private / "requirements.txt")
    return "requirements.txt"


@attack
def a_list_that_requirements_name_is_a_link(scene):
    (scene.folder / "more.txt").symlink_to(scene.private / "requirements.txt")
    return _needs(scene, "-r more.txt\n")


@attack
def a_package_of_the_folder_is_a_link(scene):
    (scene.folder / "pkg").symlink_to(scene.private)
    return _needs(scene, "-e ./pkg\n")


@attack
def a_link_to_what_stays_here(scene):
    scene.write(".env", f"TOKEN={SECRET}\n")
    (scene.folder / "requirements.txt").symlink_to(".env")
    return "not sent"


@attack
def very_many_lists(scene):
    for number in range(1500):
        scene.write(f"r/{number}.txt", f"-r {number + 1}.txt\n-r 0.txt\n")
    return _needs(scene, "-r r/0.txt\n", "into one file")


@attack
def lists_that_name_each_other(scene):
    scene.write("a.txt", "-r b.txt\n-r requirements.txt\n")
    scene.write("b.txt", "-r a.txt\n")
    scene.write("requirements.txt", "-r a.txt\n")


@attack
def lists_as_large_as_are_read(scene):
    scene.write("requirements.txt", "".join(f"-r r{number}.txt\n" for number in range(15)))
    for number in range(15):
        scene.write(f"r{number}.txt", "".join(f"p{line}==1 --hash=sha256:{'0' * 64}\n" for line in range(11_000)))


@attack
def a_project_as_large_as_is_read(scene):
    scene.write(
        "pyproject.toml",
        '[project]\nname = "a"\ndependencies = []\n'
        + "".join(f"[tool.a{number}]\nb = 1\n" for number in range(40_000)),
    )


PROJECTS = {
    "a_source": '[tool.uv.sources]\nx = {{ path = "{private}" }}\n',
    "sources": '[tool.uv.sources]\nx = [{{ path = "../private", editable = true }}]\n',
    "a_repository": '[tool.uv.sources]\nx = {{ git = "file://{private}" }}\n',
    "a_workspace": '[tool.uv.workspace]\nmembers = ["../private"]\n',
    "an_index": '[[tool.uv.index]]\nname = "x"\nurl = "file://{private}"\n',
    "links": '[tool.uv]\nfind-links = ["{private}"]\n',
    "limits": '[tool.uv]\nconstraint-dependencies = ["x @ file://{private}"]\n',
    "a_build": '[build-system]\nrequires = ["x @ file://{private}"]\n',
}


def _project(name, text):
    def make(scene):
        head = '[project]\nname = "a"\nversion = "1"\ndependencies = ["x"]\n'
        scene.write("pyproject.toml", head + text.format(private=scene.private))
        return "pyproject.toml"

    make.__name__ = f"a_project_names_{name}"
    attack(make)


for _name, _text in PROJECTS.items():
    _project(_name, _text)


@attack
def a_project_that_is_nested_deeply(scene):
    scene.write("pyproject.toml", '[project]\nname = "a"\ndependencies = ' + "[" * 100_000 + "\n")
    return "pyproject.toml"


@attack
def a_project_of_one_long_name(scene):
    scene.write("pyproject.toml", ".".join(["a"] * 200_000) + " = 1\n")
    return "pyproject.toml"


@attack
def a_cluster_file_of_one_long_name(scene):
    scene.write("cluster.toml", ".".join(["a"] * 200_000) + " = 1\n")
    return "cluster.toml"


@attack
def a_cluster_file_with_an_endless_number(scene):
    scene.write("cluster.toml", f"[job]\nmax_hours = {'9' * 100_000}\n")
    return "cluster.toml"


@attack
def a_lock_names_a_folder_elsewhere(scene):
    scene.write("pyproject.toml", '[project]\nname = "a"\nversion = "1"\ndependencies = ["x"]\n')
    scene.write(
        "uv.lock",
        f'version = 1\n[[package]]\nname = "x"\nversion = "1"\nsource={{directory="{scene.private}"}}\n',
    )
    return "uv.lock"


# Files that programs started by Muster would pick up from the current folder.


@attack
def modules_and_settings_that_programs_would_take(scene):
    code = f"import os; os.system({f'touch {scene.ran}'!r})\n"
    names = (
        "json",
        "pip",
        "torch",
        "sitecustomize",
        "usercustomize",
        "deploy",
        "trainer",
        "muster",
        "fabric",
        "invoke",
        "click",
    )
    more = (
        "paramiko",
        "docker",
        "rich",
        "psutil",
        "tasks",
        "fabfile",
        "conftest",
        "setup",
        "hashlib",
        "subprocess",
        "uv",
    )
    for name in (*names, *more, "importlib", "typing", "socket", "ssl", "tomllib", "encodings"):
        scene.write(f"{name}.py", code)
    line = f"run: {{shell: 'sh -c \"{scene.touch}\"'}}\ntasks: {{collection_name: tasks}}\n"
    for name in ("fabric.yaml", "invoke.yaml", "fabric.yml"):
        scene.write(name, line)
    scene.write("invoke.py", code)
    for name in (".env", "pip.conf", "uv.toml", ".python-version", "docker-compose.yml", "tox.ini", "setup.cfg"):
        scene.write(name, f"PATH={scene.folder}\nDOCKER_HOST=tcp://127.0.0.1:9\n")
    for name in ("git", "ssh", "docker", "python", "python3", "sh", "nvidia-smi"):
        scene.write(name, f"#!/bin/sh\n{scene.touch}\n").chmod(0o755)
        scene.write(f".venv/bin/{name}", f"#!/bin/sh\n{scene.touch}\n").chmod(0o755)


HOSTS = ("--hosts", "127.0.0.1:9")
COMMANDS = (("deploy", *HOSTS, "--dry-run", "--script", "train.py"), ("push", *HOSTS), ("preflight", *HOSTS))
UP = ("up", "--backend", "processes", "--script", "train.py")


@pytest.mark.holds("looking-runs-nothing")
@pytest.mark.parametrize("name", ATTACKS)
def test_looking_at_a_folder_runs_nothing_and_reads_nothing_outside(tmp_path, name):
    scene = Scene(tmp_path)
    expected = ATTACKS[name](scene)
    ask = scene.started if name == modules_and_settings_that_programs_would_take.__name__ else scene.muster
    watch = Watch(scene.private)
    # Muster refuses odd packages before it starts a script on this machine, so `up` is tried as well.
    refused = (expected or "").startswith(("requirements", "pyproject", "uv.lock"))
    answers = [ask(*words) for words in (COMMANDS if not expected else (COMMANDS[0], UP) if refused else COMMANDS[:1])]
    printed = "".join(text for _, text in answers)
    assert not scene.ran.exists(), f"a command ran: {printed}"
    assert watch.opened() == set()
    watch.close()
    assert "Traceback" not in printed, printed
    assert SECRET not in printed
    assert not [letter for letter in printed if letter < " " and letter not in "\n\t"], repr(printed)
    assert (expected or "127.0.0.1") in printed, printed
    assert {code for code, _ in answers} <= {1, 2, 3}, "no host is there"


@pytest.mark.holds("addresses-asked")
def test_a_git_source_needs_consent_before_it_is_fetched_with_the_users_keys(tmp_path):
    scene = Scene(tmp_path)
    scene.write("requirements.txt", "x @ git+https://127.0.0.1:9/x.git@v1\ny @ git+ssh://git@127.0.0.1/y.git\n")
    code, printed = scene.muster(*COMMANDS[0])
    assert code == 2
    assert "git+https://127.0.0.1:9/x.git@v1" in printed
    assert "git+ssh://git@127.0.0.1/y.git" in printed
    assert "--allow-folder" in printed
    code, printed = scene.muster(*COMMANDS[0], "--allow-folder")
    assert "refuses the connection" in printed
    assert "git+ssh://git@127.0.0.1/y.git" in printed, "what is used is said"
    code, printed = scene.muster(*COMMANDS[0])
    assert "refuses the connection" in printed, "the answer was kept"


@pytest.fixture
def listener():
    """A server on the loopback address; yields its port, and a function that returns who has connected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)

        def heard():
            try:
                return server.accept()[1]
            except BlockingIOError:
                return None

        yield server.getsockname()[1], heard


HEAD = '[project]\nname = "a"\nversion = "1"\n'
FETCHED = {
    "an_index": ("requirements.txt", "--index-url {url}/admin/delete?x=1\nsix\n"),
    "an_index_in_short": ("requirements.txt", "-i {url}/simple\nsix\n"),
    "an_index_after_an_equals_sign": ("requirements.txt", "--index-url={url}/simple\nsix\n"),
    "an_index_in_quotes": ("requirements.txt", '-i "{url}/simple"\nsix\n'),
    "one_index_more": ("requirements.txt", "--extra-index-url {url}/simple\nsix\n"),
    "an_index_with_a_login": ("requirements.txt", "--extra-index-url http://me:sesame@127.0.0.1:{port}/simple\nsix\n"),
    "links": ("requirements.txt", "--find-links {url}/links.html\nsix\n"),
    "a_wheel": ("requirements.txt", "x @ {url}/admin/x-1.0-py3-none-any.whl\n"),
    "a_wheel_alone": ("requirements.txt", "{url}/admin/x-1.0-py3-none-any.whl\n"),
    "an_archive": ("requirements.txt", "x[y] @ {url}/x-1.0.tar.gz#sha256=00 ; python_version > '3'\n"),
    "an_editable_archive": ("requirements.txt", "-e {url}/x-1.0.zip\n"),
    "a_need_of_a_project": ("pyproject.toml", f'{HEAD}dependencies = ["x @ {{url}}/x-1.0.tar.gz"]\n'),
    "an_escaped_need": ("pyproject.toml", f'{HEAD}dependencies = ["x @ http:\\u002f/127.0.0.1:{{port}}/x-1.0.zip"]\n'),
    "a_source_of_a_project": (
        "pyproject.toml",
        f'{HEAD}dependencies = ["x"]\n[tool.uv.sources]\nx = {{{{ url = "{{url}}/x-1.0.tar.gz" }}}}\n',
    ),
    "an_index_of_a_project": (
        "pyproject.toml",
        f'{HEAD}dependencies = ["x"]\n[tool.uv.sources]\nx = {{{{ index = "i" }}}}\n'
        '[[tool.uv.index]]\nname = "i"\nurl = "{url}/simple"\n',
    ),
}


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("name", FETCHED)
def test_an_address_needs_consent_before_muster_contacts_it(tmp_path, listener, name):
    scene, (port, heard) = Scene(tmp_path), listener
    path, text = FETCHED[name]
    scene.write(path, text.format(url=f"http://127.0.0.1:{port}", port=port))
    for words in (COMMANDS[0], UP):
        code, printed = scene.muster(*words)
        assert code == 2, printed
        assert f"127.0.0.1:{port}/" in printed
        assert "sesame" not in printed
        assert "--allow-folder" in printed
        assert heard() is None
    code, printed = scene.muster(*COMMANDS[0], "--allow-folder")
    assert "refuses the connection" in printed, "the one host is not there"
    assert f"127.0.0.1:{port}/" in printed, "what is used is said"


def test_the_users_own_index_needs_no_consent(tmp_path):
    scene = Scene(tmp_path)
    scene.write("requirements.txt", "--index-url http://127.0.0.1:9/simple/\nsix\n")
    settings = scene.home / "config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[global]\nindex-url = http://me:word@127.0.0.1:9/simple\n")
    assert "refuses the connection" in scene.muster(*COMMANDS[0])[1]


SERVICES = (
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.254.169.254."),
    *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]"),
    *("metadata.google.internal", "a:b@169.254.169.254", "100.100.100.200"),
)
# Addresses that one parser reads as one server, and the next parser as another.
UNCLEAR = ("http://evil.example\\@good.example/", "http:/127.0.0.1:9/", "http:///127.0.0.1:9/", "HTTP://127.0.0.1:9/")
UNCLEAR += ("http://127.0.0.1:9?@good.example/", "http://%31%32%37.0.0.1:9/", "http://１２７.0.0.1:9/")


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("line", ["-i {}simple", "x @ {}x-1-py3-none-any.whl", "-f {}links"])
@pytest.mark.parametrize("place", [*(f"http://{host}/" for host in SERVICES), *UNCLEAR])
def test_addresses_of_metadata_services_and_ambiguous_addresses_are_refused(tmp_path, line, place):
    scene = Scene(tmp_path)
    scene.write("requirements.txt", f"six\n{line.format(place)}\n")
    code, printed = scene.muster(*COMMANDS[0], "--allow-folder")
    assert code == 2
    assert "requirements.txt:2" in printed


@pytest.mark.holds("addresses-asked")
def test_a_git_source_at_a_metadata_service_is_refused(tmp_path):
    scene = Scene(tmp_path)
    scene.write("requirements.txt", "six\nx @ git+https://0xa9fea9fe/x.git\n")
    assert "requirements.txt:2" in scene.muster(*COMMANDS[0], "--allow-folder")[1]


def test_the_attack_by_a_filter_works_on_a_plain_git_status(tmp_path):
    """Checks the harness itself: a plain `git status` in such a folder runs the command."""
    scene = Scene(tmp_path)
    an_archive_with_a_repository_has_a_clean_filter(scene)
    os.utime(scene.folder / "train.py", (1, 1))
    subprocess.run(["git", "status"], cwd=scene.folder, capture_output=True, check=False)
    assert scene.ran.exists()
    watch = Watch(scene.private)
    subprocess.run(["sh", "-c", f"cat {shlex.quote(str(scene.private))}/secret.txt"], capture_output=True, check=True)
    assert watch.opened()
    watch.close()
