"""If a script misses a file that was not sent, the hint names the option that sends it."""

import io
import shlex

import pytest
from rich.console import Console as RichConsole

from deploy.core.errors import UsageError
from deploy.report import folder_notes
from deploy.report.console import THEME, Console
from deploy.send.folder import folder_look, missed, selection
from deploy.send.folder.credentials import SendChoice


@pytest.fixture
def folder(tmp_path):
    for path in ("train.py", "data/train.bin", "data/val.bin", "conf/.env", "key.txt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / ".gitignore").write_text("*.bin\n.env\nkey.txt\n")
    (tmp_path / "key.txt").write_text("-----BEGIN PRIVATE KEY-----\n" + "a" * 64 + "\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "train.py ended with 1: FileNotFoundError: [Errno 2] No such file or directory: 'data/val.bin'",
        "train.py failed\n    FileNotFoundError: [Errno 2] No such file or directory: './data/val.bin'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/workspace/data/val.bin'",
        "FileNotFoundError: No such file: '/home/me/runs/1/sent/workspace/data/val.bin'",
        "FileNotFoundError: data/val.bin not found.",
        "cat: data/val.bin: No such file or directory",
    ],
)
def test_a_file_that_a_rule_left_out_is_named_with_its_option(folder, words):
    assert missed.hint(words, folder, SendChoice()) == (
        "data/val.bin was not sent (.gitignore names it): --include data/val.bin --include data/train.bin"
    )


def test_a_file_of_an_unsent_folder_is_named_with_the_folder_and_earlier_includes(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/train.bin", "data/val.bin", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\nnotes.txt\n")
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/val.bin'"
    hint = missed.hint(words, tmp_path, SendChoice(include=frozenset({"notes.txt"})))
    assert hint.endswith(": --include notes.txt --include data")


@pytest.mark.parametrize(
    ("words", "mount"),
    [
        ("FileNotFoundError: no .npy samples in /data/b/train", "/data/b"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", "/data"),
        ("cat: /home/me/sets/a/b.txt: No such file or directory", "/home/me/sets"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/home/me/sets'", "/home/me/sets"),
    ],
)
def test_a_path_that_hosts_may_have_is_named_with_its_mount(words, mount):
    assert missed.of_hosts(words, "").endswith(f": --mount {mount}:{mount}")
    assert not missed.of_hosts(words, f"--gpus 1 --mount /mnt{mount}:{mount}")


@pytest.mark.parametrize(
    "path", ["/usr/lib/libx.so", "/workspace/a/b", "/data", "/home/me", "/data/$(reboot)/x", "data/b/train"]
)
def test_a_path_that_hosts_do_not_have_is_not_mounted(path):
    assert not missed.of_hosts(f"FileNotFoundError: '{path}'", "")


@pytest.mark.parametrize(
    "words",
    [
        "ValueError: 'data/val.bin' has 3 columns",
        "No such file or directory: 'data/other.bin'",
        "No such file or directory: 'train.py'",
        "No such file or directory: '../../etc/passwd' '/etc/passwd' ''",
        "No such file or directory: 'a\0b'",
    ],
)
def test_other_messages_give_no_hint(folder, words):
    assert missed.hint(words, folder, SendChoice()) == ""


def test_a_mistyped_path_is_answered_with_the_similar_file(folder):
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/vall.bin'"
    assert missed.hint(words, folder, SendChoice()) == "the folder has no data/vall.bin: did you mean data/val.bin?"


def test_a_file_that_was_sent_gives_no_hint(folder):
    words = "No such file or directory: 'data/val.bin'"
    assert missed.hint(words, folder, SendChoice(frozenset({"data/val.bin"}))) == ""


@pytest.mark.parametrize("path", [".env", "conf/.env", "key.txt"])
def test_a_hosts_message_never_makes_the_hint_send_a_credential(folder, path):
    hint = missed.hint(f"No such file or directory: '{path}'", folder, SendChoice())
    assert path in hint
    assert "--include" not in hint


def test_an_unknown_include_is_answered_with_a_similar_path_but_never_a_credential(folder):
    for path, meant in (("data/vall.bin", "--include data/val.bin"), (".enf", f"give a path relative to {folder}")):
        with pytest.raises(UsageError) as refused:
            folder_look.look_at(folder, SendChoice(frozenset({path})))
        assert refused.value.hint == meant


def test_the_note_about_unsent_files_does_not_offer_to_send_a_credential(folder):
    (folder / ".gitignore").write_text(".env\nid_rsa\n")
    (folder / "id_rsa").write_text("x")
    (note,) = selection.select(folder).notes
    assert "id_rsa" in note
    assert "--include" not in note


def test_a_module_of_an_unsent_folder_is_named_with_the_folder(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/__init__.py", "data/text.py"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\n")
    words = "train.py ended with 1: ModuleNotFoundError: No module named 'data.text'"
    assert (
        missed.hint(words, tmp_path, SendChoice()) == "data/text.py was not sent (.gitignore names it): --include data"
    )
    assert missed.hint(words.replace(".text", ""), tmp_path, SendChoice()).endswith(": --include data")


def test_a_module_in_neither_the_folder_nor_the_image_is_a_package_to_add(folder, monkeypatch):
    words = "train.py ended with 1: ModuleNotFoundError: No module named 'tokenizers.models'"
    hint = f"add the package that has tokenizers to a requirements.txt in {folder}"
    assert missed.hint(words, folder, SendChoice()) == hint
    monkeypatch.chdir(folder)
    assert missed.hint("/usr/bin/python: No module named accelerate", folder.__class__(), SendChoice()) == (
        "add the package that has accelerate to a requirements.txt in the folder"
    )


@pytest.mark.parametrize(("root", "path"), [("", "."), ("src/", "src")])
def test_a_sent_module_that_is_not_found_is_answered_with_pythonpath_and_not_a_package(tmp_path, root, path):
    (tmp_path / f"{root}models").mkdir(parents=True)
    (tmp_path / f"{root}models/net.py").write_text("x")
    for module in ("models.net", "models"):
        assert missed.hint(f"ModuleNotFoundError: No module named '{module}'", tmp_path, SendChoice()) == (
            f"the folder has {root}models, but Python does not look there: -e PYTHONPATH={path}"
        )


def test_a_module_of_musters_own_library_gives_no_hint(tmp_path):
    assert missed.hint("ModuleNotFoundError: No module named 'muster.lightning'", tmp_path, SendChoice()) == ""


@pytest.mark.parametrize(
    ("needs", "where"),
    [
        ("pyproject.toml", "`dependencies` in pyproject.toml"),
        ("uv.lock", "pyproject.toml, and run uv lock"),
        ("requirements.txt", "requirements.txt"),
    ],
)
def test_a_package_is_to_be_added_to_the_file_that_lists_the_folders_packages(folder, needs, where):
    words = "ModuleNotFoundError: No module named 'sklearn'"
    assert missed.hint(words, folder, SendChoice(), needs) == f"add scikit-learn to {where}"


@pytest.mark.parametrize(
    ("needs", "text", "module", "package"),
    [
        ("requirements.txt", "numpy\nPyYAML>=5.3.1  # settings\n", "yaml", "PyYAML"),
        ("requirements.txt", "opencv-python==4.6\n", "cv2", "opencv-python"),
        (
            "requirements.txt",
            "git+https://github.com/cocodataset/cocoapi.git#subdirectory=PythonAPI&egg=pycocotools\n",
            "pycocotools",
            "pycocotools",
        ),
        ("requirements.txt", "flash_attn\n", "flash_attn", "flash_attn"),
        ("pyproject.toml", '[project]\ndependencies = [\n  "scikit_learn>=1",\n]\n', "sklearn", "scikit_learn"),
        ("uv.lock", '[[package]]\nname = "wandb"\nversion = "0.21.3"\n', "wandb", "wandb"),
    ],
)
def test_a_package_that_the_file_already_names_is_not_to_be_added(folder, needs, text, module, package):
    (folder / needs).write_text(text)
    if needs == "uv.lock":
        (folder / "pyproject.toml").write_text('[project]\ndependencies = [\n  "wandb>=0.21.3",\n]\n')
    hint = missed.hint(f"ModuleNotFoundError: No module named '{module}'", folder, SendChoice(), needs)
    assert hint.startswith(f"{needs} lists {package}, but it is not installed")
    assert f"--requirements {needs}" in hint
    other = missed.hint("ModuleNotFoundError: No module named 'flash'", folder, SendChoice(), needs)
    assert other.startswith("add the package that has flash")


@pytest.mark.parametrize("needs", ["pyproject.toml", "uv.lock", "part/uv.lock"])
def test_a_project_names_a_package_in_its_dependencies_and_not_in_a_group(folder, needs):
    """Once, `dependencies = ["einops"]` on one line was not found, but groups, which nobody installs, were."""
    project = folder / needs.replace("uv.lock", "pyproject.toml")
    project.parent.mkdir(exist_ok=True)
    project.write_text('[project]\ndependencies = ["numpy", "einops>=1"]\n[dependency-groups]\ndev = [\n"tqdm"\n]\n')
    words = "ModuleNotFoundError: No module named '{}'"
    told = missed.hint(words.format("einops"), folder, SendChoice(), needs)
    assert told.startswith(f"{needs} lists einops, but it is not installed")
    told = missed.hint(words.format("tqdm"), folder, SendChoice(), needs)
    assert told.startswith("add the package that has tqdm to")
    assert "to part/uv.lock" not in told
    project.write_text("project = [")
    assert missed.hint(words.format("tqdm"), folder, SendChoice(), needs).startswith("add the package that has tqdm to")


@pytest.mark.parametrize("place", ["wandb", "../wandb"])
def test_a_folder_of_data_is_not_a_module_with_its_name(tmp_path, monkeypatch, place):
    """Once, `--include wandb` was suggested for a package that nothing installs, because its runs had left a folder."""
    (folder := tmp_path / "repo/trainer").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for path in ("../.git/HEAD", ".gitignore", f"{place}/run-1/files/code/x.py", f"{place}/a.csv"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("wandb/\n")
    words = "ModuleNotFoundError: No module named 'wandb'"
    assert missed.hint(words, folder, SendChoice()).startswith("add the package that has wandb to")
    (folder / place / "__init__.py").write_text("")
    assert "add" not in missed.hint(words, folder, SendChoice())


@pytest.mark.parametrize("needs", ["pyproject.toml", "uv.lock"])
def test_for_a_package_of_an_extra_the_hint_asks_for_the_extra(folder, needs):
    """A default installation leaves extras out, although the project file lists the package on a line of its own."""
    extras = '[project.optional-dependencies]\ntrain = [\n  "Scikit_Learn>=1",\n]\nodd = 1\n"$(x)" = ["tqdm"]\n'
    (folder / "pyproject.toml").write_text(f'[project]\nname = "a"\ndependencies = ["numpy"]\n{extras}')
    words = "ModuleNotFoundError: No module named '{}'"
    told = missed.hint(words.format("sklearn"), folder, SendChoice(), needs)
    assert told.startswith("pyproject.toml lists it in the extra train, which is not installed")
    assert "-e .[train]" in told
    for module in ("einops", "tqdm"):
        assert "extra" not in missed.hint(words.format(module), folder, SendChoice(), needs)


@pytest.mark.parametrize("where", ["/muster/run/work/", "runs/a/work/"])
def test_for_a_package_of_the_scripts_own_block_the_hint_names_the_script(folder, where):
    block = '# /// script\n# dependencies = ["fire"]\n# ///\n'
    (folder / "train me.py").write_text(block)
    (folder / "pyproject.toml").write_text('[project]\nname = "a"\noptional-dependencies.x = ["fire"]\n')
    words = f"  File \"{where}train me.py\", line 4, in <module>\nModuleNotFoundError: No module named '{{}}'"
    told = missed.hint(words.format("fire"), folder, SendChoice(), "pyproject.toml")
    assert told == "its `# /// script` block lists it: put --requirements 'train me.py' before the script"
    (folder / "needs.txt").write_text("fire\n")
    assert missed.hint(words.format("fire"), folder, SendChoice(), "needs.txt").startswith("needs.txt lists fire, but")
    for module, needs in (("einops", "pyproject.toml"), ("fire", "train me.py")):
        assert "script" not in missed.hint(words.format(module), folder, SendChoice(), needs).split()


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """A folder in a repository, with links to the repository's other code and to data elsewhere."""
    for path in ("repo/lib/net.py", "repo/egs/my set/train.py", "repo/egs/my set/own/a.py", "disk/a.bin"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("x")
    folder = tmp_path / "repo/egs/my set"
    (folder / "lib").symlink_to("../../lib")
    (folder / "same").symlink_to("own")
    (folder / "none").symlink_to("../nothing")
    (folder / "data").symlink_to(tmp_path / "disk")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "ModuleNotFoundError: No module named 'lib'",
        "ModuleNotFoundError: No module named 'lib.net'",
        "run.sh: line 3: lib/net.py: No such file or directory",
    ],
)
def test_for_a_link_to_the_rest_of_the_repository_the_hint_sends_the_folder_around_both(experiment, words):
    """The option --include would be refused, and no package has the module."""
    assert missed.hint(words, experiment, SendChoice()) == (
        "lib is a link out of the folder: --folder ../.. bash -c "
        + shlex.quote("cd 'egs/my set' && ...")
        + " sends it too"
    )


def test_a_folder_is_named_as_it_is_typed(experiment, monkeypatch):
    """As if `--folder 'egs/my set'` was typed in the repository's top folder."""
    monkeypatch.chdir(experiment.parents[1])
    assert "--folder . bash -c" in missed.hint("ModuleNotFoundError: No module named 'lib'", experiment, SendChoice())


def test_the_hint_never_sends_a_home_folder(experiment, monkeypatch):
    monkeypatch.setenv("HOME", str(experiment.parents[1] / "me"))
    hint = missed.hint("ModuleNotFoundError: No module named 'lib'", experiment, SendChoice())
    assert hint == "lib is a link out of the folder: copy its target into the folder"


def test_for_a_link_to_a_disk_the_hint_is_a_mount_or_data(experiment):
    hint = missed.hint("FileNotFoundError: [Errno 2] No such file or directory: 'data/a.bin'", experiment, SendChoice())
    disk = experiment.parents[2] / "disk"
    assert f"--mount {disk}:{disk}" in hint
    assert f"--data {disk}:{disk}" in hint


@pytest.mark.parametrize("made", ["$(touch here)", "x;touch here;", "`touch here`", "a b"])
def test_the_paths_in_a_hint_are_quoted_for_the_shell_whatever_a_links_name(tmp_path, made):
    """The author of the repository chose the targets of its links."""
    (disk := tmp_path / made).mkdir()
    (folder := tmp_path / "in" / made / "own").mkdir(parents=True)
    (folder / "far").symlink_to(disk)
    (folder / "near").symlink_to(f"../../{made}")
    far, near = (shlex.split(selection.beyond_link(folder, link)) for link in ("far", "near"))
    assert far.count(f"{disk}:{disk}") == 2
    assert shlex.split(near[near.index("-c") + 1]) == ["cd", f"{made}/own", "&&", "..."]


@pytest.mark.parametrize("place", ["me", "me/.ssh", "."])
def test_for_a_link_to_a_home_or_its_keys_the_hint_never_sends_them(tmp_path, monkeypatch, place):
    (tmp_path / "me/.ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (folder := tmp_path / "code").mkdir()
    (folder / "weights").symlink_to((tmp_path / place).resolve())
    assert (
        selection.beyond_link(folder, "weights")
        == "weights is a link out of the folder: copy its target into the folder"
    )


@pytest.mark.parametrize(
    ("words", "missing", "above"),
    [
        ("ModuleNotFoundError: No module named 'model'", "../model", ".."),
        ("ModuleNotFoundError: No module named 'model.net'", "../model/net.py", ".."),
        ("ModuleNotFoundError: No module named 'helpers'", "../../helpers.py", "../.."),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../model/net.py'", "../model/net.py", ".."),
        ("FileNotFoundError: Unable to find '/here/runs/7/model/net.py'", "../model/net.py", ".."),
        ("FileNotFoundError: No such file: '/muster/run/work/../model/net.py'", "../model/net.py", ".."),
    ],
)
def test_for_files_around_the_folder_the_hint_sends_the_folder_above(tmp_path, monkeypatch, words, missing, above):
    """Many repositories document `cd trainer && torchrun train.py`, and their scripts import and read from `..`."""
    (repository := tmp_path / "repo").mkdir()
    (folder := repository / "egs/trainer").mkdir(parents=True)
    for path in ("helpers.py", "egs/model/net.py", "egs/trainer/train.py"):
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text("x")
    assert "outside" not in missed.hint(words, folder, SendChoice(), run="7"), "nothing says that it is one project"
    (repository / ".git").mkdir()
    monkeypatch.chdir(folder)
    into = shlex.quote(f"cd {'trainer' if above == '..' else 'egs/trainer'} && ...")
    assert missed.hint(words, folder, SendChoice(), run="7") == (
        f"{missing} is outside the folder that Muster sends: --folder {above} bash -c {into} sends it too"
    )


@pytest.mark.parametrize("path", ["../../.ssh/id_rsa", "../../other/a.py", "../own.py", "../none.py", "/etc/passwd"])
def test_a_hosts_message_never_makes_the_hint_send_more_than_the_repository(tmp_path, monkeypatch, path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".ssh/id_rsa", "other/a.py", "repo/.git/HEAD", "repo/own.py", "repo/trainer/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    words = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    hint = missed.hint(words, tmp_path / "repo/trainer", SendChoice())
    assert bool(hint) == (path == "../own.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / "repo/.git/HEAD").unlink()
    (tmp_path / "repo/.git").rmdir()
    hint = missed.hint(words, tmp_path / "repo/trainer", SendChoice())  # now the home folder is a repository
    assert ("--folder" in hint) == (path == "../own.py")


def told_of(folder, words=(), targets=()):
    text = io.StringIO()
    err = RichConsole(file=text, theme=THEME, width=2000)
    folder_notes.tell_sent(folder_look.FolderLook(folder), Console(False, err, err), words, targets)
    return text.getvalue()


def test_a_git_folder_that_a_dockerignore_does_not_exclude_is_silently_not_sent(tmp_path):
    """Once, `--secret NAME=FILE gives the ranks a value` was printed for the .git of gpt-neox and alpaca-lora."""
    for name in (".git/HEAD", "libs/a/.git/HEAD", "train.py", ".dockerignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(".venv\n")
    assert told_of(tmp_path) == ""
    assert not [path for path in folder_look.look_at(tmp_path, SendChoice()).entries if ".git" in path.path.split("/")]
    (tmp_path / ".env").write_text("KEY=1\n")
    assert told_of(tmp_path).startswith("not sent: .env;")


def test_a_deploy_reports_a_link_out_of_the_folder_before_it_starts(experiment):
    """A link to a disk is not reported, since hosts may have that disk as well."""
    assert told_of(experiment).startswith("lib is a link out of the folder")
    assert told_of(experiment).count("is a link out") == 1


@pytest.mark.parametrize("word", ["data/a.bin", "--train=data/a.bin", "data"])
def test_a_link_to_a_disk_is_reported_before_the_start_if_the_command_needs_it(experiment, word):
    (experiment / "lib").unlink()
    disk = str(experiment.parents[2] / "disk")
    assert f"--data {disk}:{disk}" in told_of(experiment, ["train.py", word])
    assert told_of(experiment, ["train.py", word], [disk]) == ""
    assert told_of(experiment, ["train.py", "data/none.bin", f"{disk}/a.bin", "own/a.py"]) == ""


def test_a_module_of_a_package_in_src_is_never_a_package_to_add(tmp_path):
    for name in ("src/lit/__init__.py", "src/lit/train.py", "src/lit/data/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\n")
    words = "ModuleNotFoundError: No module named 'lit.data'"
    assert missed.hint(words, tmp_path, SendChoice()).endswith(
        "was not sent (.gitignore names it): --include src/lit/data"
    )
    words = "ended with code 1: ImportError: No module named lit.trian"
    assert missed.hint(words, tmp_path, SendChoice()) == "src/lit has no trian.py: did you mean lit.train?"


def test_unsent_files_next_to_a_missing_one_are_included_too_but_no_credentials(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/train.bin", "data/val.bin", "data/prepare.py", "data/.env", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("*.bin\n.env\nnotes.txt\n")
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/val.bin'"
    assert missed.hint(words, tmp_path, SendChoice()).endswith(": --include data/val.bin --include data/train.bin")


def test_a_missing_variable_of_an_unsent_env_file_is_answered_with_env_file(folder):
    words = "train.py ended with 1: KeyError: 'KEY'"
    assert "--env-file .env" in missed.hint(words, folder, SendChoice())
    assert missed.hint(words, folder, SendChoice(values={"KEY": "1"})) == ""
    assert missed.hint(words.replace("KEY'", "OTHER'"), folder, SendChoice()) == ""


@pytest.fixture
def corpus(tmp_path):
    """A folder in which rules exclude all of data/ and outputs/, and a part of lists/."""
    for path in ("train.py", "data/corpus/train.txt", "lists/a.txt", "lists/b.csv", "outputs/last.pt"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\n*.csv\noutputs/\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "FileNotFoundError: Unable to find '/muster/run/work/data/corpus/train.txt'",
        "FileNotFoundError: Unable to find 'rack-1:~/.muster/runs/r-1/work/data/corpus/train.txt'",
        "FileNotFoundError: Unable to find 'runs/r-1/work/data/corpus/train.txt'",
        "EmptyDatasetError: Couldn't find any data file at /muster/run/work/data/corpus.",
        "FileNotFoundError: Unable to find '/muster/run/work/data/corpus/*.txt'",
        "train.py ended with 1 without an exception\n    could not open data/corpus/train.txt",
    ],
)
def test_the_option_is_named_however_a_library_names_the_unsent_file(corpus, words):
    hint = missed.hint(f"train.py ended with 1: {words}", corpus, SendChoice(), run="r-1")
    assert hint.endswith("was not sent (.gitignore names it): --include data")


def test_a_partly_sent_folder_is_not_what_is_missing(corpus):
    assert not missed.hint("FileNotFoundError: no tables found, 'lists' not found", corpus, SendChoice())
    assert not missed.hint("KeyError: 'b' not found in lists", corpus, SendChoice())


def test_an_error_with_another_cause_blames_no_file_that_it_names(corpus):
    words = "RuntimeError: PytorchStreamWriter failed writing file outputs/last.pt: No space left on device"
    assert not missed.hint(words, corpus, SendChoice())


def test_a_file_that_the_rank_has_is_not_what_it_misses(corpus):
    words = "FileNotFoundError: 'data/corpus/train.txt'"
    assert not missed.hint(words, corpus, SendChoice(), host_paths={"work/data/corpus/train.txt"})


def test_the_outputs_of_an_earlier_local_run_are_not_to_be_sent(corpus):
    words = "FileNotFoundError: Checkpoint file not found: /muster/run/work/outputs/epoch_5.ckpt"
    assert not missed.hint(words, corpus, SendChoice())


def test_a_folder_that_a_script_wants_to_write_to_gives_no_hint(corpus):
    assert not missed.hint("RuntimeError: Parent directory ./outputs does not exist.", corpus, SendChoice())
    assert not missed.hint("RuntimeError: Parent directory outputs does not exist.", corpus, SendChoice())


@pytest.mark.parametrize(
    ("module", "package"),
    [("PIL", "pillow"), ("cv2", "opencv-python-headless"), ("sklearn.svm", "scikit-learn"), ("pkg_resources", "setup")],
)
def test_a_package_with_another_name_than_its_module_is_named_correctly(folder, module, package):
    words = f"ModuleNotFoundError: No module named '{module}'"
    assert missed.hint(words, folder, SendChoice(), "requirements.txt").startswith(f"add {package}")
