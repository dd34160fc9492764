"""A script that misses a file which stayed here gets the option that sends it."""

import io
import shlex

import pytest
from rich.console import Console as RichConsole

from deploy.core.errors import UsageError
from deploy.report import folder_notes
from deploy.report.console import THEME, Console
from deploy.send.folder import folder_look, missed, selection
from deploy.send.folder.credentials import Choice


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
    assert missed.hint(words, folder, Choice()) == (
        "data/val.bin was not sent (.gitignore names it): --include data/val.bin --include data/train.bin"
    )


def test_a_file_of_a_folder_that_is_left_out_is_named_with_the_folder_and_what_was_asked_for_before(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/train.bin", "data/val.bin", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\nnotes.txt\n")
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/val.bin'"
    hint = missed.hint(words, tmp_path, Choice(include=frozenset({"notes.txt"})))
    assert hint.endswith(": --include notes.txt --include data")


@pytest.mark.parametrize(
    ("words", "mount"),
    [
        ("FileNotFoundError: no .npy samples in /data/b/train", "/data/b"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", "/data"),
        ("cat: /home/me/sets/a/b.txt: No such file or directory", "/home/me/sets"),
    ],
)
def test_what_the_hosts_may_have_is_named_with_its_mount(words, mount):
    assert missed.of_hosts(words, "").endswith(f": --mount {mount}:{mount}")
    assert not missed.of_hosts(words, f"--gpus 1 --mount /mnt{mount}:{mount}")


@pytest.mark.parametrize("path", ["/usr/lib/libx.so", "/workspace/a/b", "/data", "/data/$(reboot)/x", "data/b/train"])
def test_what_is_no_path_of_the_hosts_is_not_mounted(path):
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
def test_other_words_give_no_hint(folder, words):
    assert missed.hint(words, folder, Choice()) == ""


def test_a_path_with_a_typo_names_the_file_beside_it(folder):
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/vall.bin'"
    assert missed.hint(words, folder, Choice()) == "the folder has no data/vall.bin: did you mean data/val.bin?"


def test_a_file_that_was_sent_gives_no_hint(folder):
    words = "No such file or directory: 'data/val.bin'"
    assert missed.hint(words, folder, Choice(frozenset({"data/val.bin"}))) == ""


@pytest.mark.parametrize("path", [".env", "conf/.env", "key.txt"])
def test_no_host_brings_a_user_to_send_a_credential(folder, path):
    hint = missed.hint(f"No such file or directory: '{path}'", folder, Choice())
    assert path in hint
    assert "--include" not in hint


def test_a_name_that_is_not_there_gets_one_that_is_and_never_a_credential(folder):
    for path, meant in (("data/vall.bin", "--include data/val.bin"), (".enf", f"give a path relative to {folder}")):
        with pytest.raises(UsageError) as refused:
            folder_look.look_at(folder, Choice(frozenset({path})))
        assert refused.value.hint == meant


def test_the_note_on_what_stays_here_offers_to_send_no_credential(folder):
    (folder / ".gitignore").write_text(".env\nid_rsa\n")
    (folder / "id_rsa").write_text("x")
    (note,) = selection.select(folder).notes
    assert "id_rsa" in note
    assert "--include" not in note


def test_a_module_of_a_folder_that_a_rule_left_out_is_named_with_the_folder(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/__init__.py", "data/text.py"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data/\n")
    words = "train.py ended with 1: ModuleNotFoundError: No module named 'data.text'"
    assert missed.hint(words, tmp_path, Choice()) == "data/text.py was not sent (.gitignore names it): --include data"
    assert missed.hint(words.replace(".text", ""), tmp_path, Choice()).endswith(": --include data")


def test_a_module_that_neither_the_folder_nor_the_image_has_is_a_package_to_ask_for(folder, monkeypatch):
    words = "train.py ended with 1: ModuleNotFoundError: No module named 'tokenizers.models'"
    hint = f"add the package that has tokenizers to a requirements.txt in {folder}"
    assert missed.hint(words, folder, Choice()) == hint
    monkeypatch.chdir(folder)
    assert missed.hint("/usr/bin/python: No module named accelerate", folder.__class__(), Choice()) == (
        "add the package that has accelerate to a requirements.txt in the folder"
    )


@pytest.mark.parametrize(("root", "path"), [("", "."), ("src/", "src")])
def test_a_module_that_was_sent_and_is_not_found_is_no_package_and_where_it_lies_is_put_on_the_path(
    tmp_path, root, path
):
    (tmp_path / f"{root}models").mkdir(parents=True)
    (tmp_path / f"{root}models/net.py").write_text("x")
    for module in ("models.net", "models"):
        assert missed.hint(f"ModuleNotFoundError: No module named '{module}'", tmp_path, Choice()) == (
            f"the folder has {root}models, but Python does not look there: -e PYTHONPATH={path}"
        )


def test_a_module_of_muster_s_library_is_in_no_package_that_could_be_added(tmp_path):
    assert missed.hint("ModuleNotFoundError: No module named 'muster.lightning'", tmp_path, Choice()) == ""


@pytest.mark.parametrize(
    ("needs", "where"),
    [
        ("pyproject.toml", "`dependencies` in pyproject.toml"),
        ("uv.lock", "pyproject.toml, and run uv lock"),
        ("requirements.txt", "requirements.txt"),
    ],
)
def test_a_package_is_to_be_added_where_the_folder_names_its_packages(folder, needs, where):
    words = "ModuleNotFoundError: No module named 'sklearn'"
    assert missed.hint(words, folder, Choice(), needs) == f"add scikit-learn to {where}"


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
def test_a_package_that_the_file_names_already_is_not_to_be_added(folder, needs, text, module, package):
    (folder / needs).write_text(text)
    if needs == "uv.lock":
        (folder / "pyproject.toml").write_text('[project]\ndependencies = [\n  "wandb>=0.21.3",\n]\n')
    hint = missed.hint(f"ModuleNotFoundError: No module named '{module}'", folder, Choice(), needs)
    assert hint.startswith(f"{needs} lists {package}, but it is not installed")
    assert f"--requirements {needs}" in hint
    other = missed.hint("ModuleNotFoundError: No module named 'flash'", folder, Choice(), needs)
    assert other.startswith("add the package that has flash")


@pytest.mark.parametrize("needs", ["pyproject.toml", "uv.lock", "part/uv.lock"])
def test_a_project_names_a_package_where_it_asks_for_it_and_in_no_group_of_its_own(folder, needs):
    """`dependencies = ["einops"]` on one line was not seen; nobody installs its groups, which were."""
    project = folder / needs.replace("uv.lock", "pyproject.toml")
    project.parent.mkdir(exist_ok=True)
    project.write_text('[project]\ndependencies = ["numpy", "einops>=1"]\n[dependency-groups]\ndev = [\n"tqdm"\n]\n')
    words = "ModuleNotFoundError: No module named '{}'"
    told = missed.hint(words.format("einops"), folder, Choice(), needs)
    assert told.startswith(f"{needs} lists einops, but it is not installed")
    told = missed.hint(words.format("tqdm"), folder, Choice(), needs)
    assert told.startswith("add the package that has tqdm to")
    assert "to part/uv.lock" not in told
    project.write_text("project = [")
    assert missed.hint(words.format("tqdm"), folder, Choice(), needs).startswith("add the package that has tqdm to")


@pytest.mark.parametrize("place", ["wandb", "../wandb"])
def test_a_folder_of_data_is_no_module_of_its_name(tmp_path, monkeypatch, place):
    """`--include wandb` was said of a package that nothing installs, by the folder that its runs had left."""
    (folder := tmp_path / "repo/trainer").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for path in ("../.git/HEAD", ".gitignore", f"{place}/run-1/files/code/x.py", f"{place}/a.csv"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("wandb/\n")
    words = "ModuleNotFoundError: No module named 'wandb'"
    assert missed.hint(words, folder, Choice()).startswith("add the package that has wandb to")
    (folder / place / "__init__.py").write_text("")
    assert "add" not in missed.hint(words, folder, Choice())


@pytest.mark.parametrize("needs", ["pyproject.toml", "uv.lock"])
def test_a_package_of_an_extra_is_not_to_be_added_but_the_extra_asked_for(folder, needs):
    """A default installation leaves extras out; and a list of one package a line names it all the same."""
    extras = '[project.optional-dependencies]\ntrain = [\n  "Scikit_Learn>=1",\n]\nodd = 1\n"$(x)" = ["tqdm"]\n'
    (folder / "pyproject.toml").write_text(f'[project]\nname = "a"\ndependencies = ["numpy"]\n{extras}')
    words = "ModuleNotFoundError: No module named '{}'"
    told = missed.hint(words.format("sklearn"), folder, Choice(), needs)
    assert told.startswith("pyproject.toml lists it in the extra train, which is not installed")
    assert "-e .[train]" in told
    for module in ("einops", "tqdm"):
        assert "extra" not in missed.hint(words.format(module), folder, Choice(), needs)


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """A folder of a repository, whose code it has as links; and data elsewhere."""
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
def test_what_a_link_to_the_rest_of_the_repository_leads_to_comes_with_the_folder_around_both(experiment, words):
    """--include would be refused, and no package has it."""
    assert missed.hint(words, experiment, Choice()) == (
        "lib is a link out of the folder: --folder ../.. bash -c "
        + shlex.quote("cd 'egs/my set' && ...")
        + " sends it too"
    )


def test_a_folder_is_named_as_it_is_typed(experiment, monkeypatch):
    """`--folder 'egs/my set'` was typed, further up."""
    monkeypatch.chdir(experiment.parents[1])
    assert "--folder . bash -c" in missed.hint("ModuleNotFoundError: No module named 'lib'", experiment, Choice())


def test_nobody_is_told_to_send_a_home(experiment, monkeypatch):
    monkeypatch.setenv("HOME", str(experiment.parents[1] / "me"))
    hint = missed.hint("ModuleNotFoundError: No module named 'lib'", experiment, Choice())
    assert hint == "lib is a link out of the folder: copy its target into the folder"


def test_what_a_link_to_a_disk_leads_to_is_mounted_or_data(experiment):
    hint = missed.hint("FileNotFoundError: [Errno 2] No such file or directory: 'data/a.bin'", experiment, Choice())
    disk = experiment.parents[2] / "disk"
    assert f"--mount {disk}:{disk}" in hint
    assert f"--data {disk}:{disk}" in hint


@pytest.mark.parametrize("made", ["$(touch here)", "x;touch here;", "`touch here`", "a b"])
def test_the_words_of_a_hint_are_one_word_of_a_shell_whatever_a_link_is_called(tmp_path, made):
    """Whoever made the repository chose where its links lead."""
    (disk := tmp_path / made).mkdir()
    (folder := tmp_path / "in" / made / "own").mkdir(parents=True)
    (folder / "far").symlink_to(disk)
    (folder / "near").symlink_to(f"../../{made}")
    far, near = (shlex.split(selection.beyond_link(folder, link)) for link in ("far", "near"))
    assert far.count(f"{disk}:{disk}") == 2
    assert shlex.split(near[near.index("-c") + 1]) == ["cd", f"{made}/own", "&&", "..."]


@pytest.mark.parametrize("place", ["me", "me/.ssh", "."])
def test_a_link_to_a_home_or_its_keys_is_never_answered_by_the_option_that_sends_them(tmp_path, monkeypatch, place):
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
def test_what_lies_around_the_folder_in_its_repository_comes_with_it(tmp_path, monkeypatch, words, missing, above):
    """Many repositories say `cd trainer && torchrun train.py`, whose scripts import and read from `..`."""
    (repository := tmp_path / "repo").mkdir()
    (folder := repository / "egs/trainer").mkdir(parents=True)
    for path in ("helpers.py", "egs/model/net.py", "egs/trainer/train.py"):
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text("x")
    assert "outside" not in missed.hint(words, folder, Choice(), run="7"), "nothing says that it is one project"
    (repository / ".git").mkdir()
    monkeypatch.chdir(folder)
    into = shlex.quote(f"cd {'trainer' if above == '..' else 'egs/trainer'} && ...")
    assert missed.hint(words, folder, Choice(), run="7") == (
        f"{missing} is outside the folder that Muster sends: --folder {above} bash -c {into} sends it too"
    )


@pytest.mark.parametrize("path", ["../../.ssh/id_rsa", "../../other/a.py", "../own.py", "../none.py", "/etc/passwd"])
def test_no_words_of_a_host_ask_for_more_than_the_repository(tmp_path, monkeypatch, path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (".ssh/id_rsa", "other/a.py", "repo/.git/HEAD", "repo/own.py", "repo/trainer/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    words = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    hint = missed.hint(words, tmp_path / "repo/trainer", Choice())
    assert bool(hint) == (path == "../own.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / "repo/.git/HEAD").unlink()
    (tmp_path / "repo/.git").rmdir()
    hint = missed.hint(words, tmp_path / "repo/trainer", Choice())  # the home is a repository now
    assert ("--folder" in hint) == (path == "../own.py")


def told_of(folder, words=(), targets=()):
    text = io.StringIO()
    err = RichConsole(file=text, theme=THEME, width=2000)
    folder_notes.tell_sent(folder_look.FolderLook(folder), Console(False, err, err), words, targets)
    return text.getvalue()


def test_a_repository_that_a_dockerignore_leaves_in_stays_without_a_word(tmp_path):
    """`--secret NAME=FILE gives the ranks a value`, was said of gpt-neox's and alpaca-lora's .git."""
    for name in (".git/HEAD", "libs/a/.git/HEAD", "train.py", ".dockerignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(".venv\n")
    assert told_of(tmp_path) == ""
    assert not [path for path in folder_look.look_at(tmp_path, Choice()).entries if ".git" in path.path.split("/")]
    (tmp_path / ".env").write_text("KEY=1\n")
    assert told_of(tmp_path).startswith("not sent: .env;")


def test_a_deploy_says_before_it_starts_that_a_link_leads_out_of_the_folder(experiment):
    """Not of one to a disk, which hosts may have as well."""
    assert told_of(experiment).startswith("lib is a link out of the folder")
    assert told_of(experiment).count("is a link out") == 1


@pytest.mark.parametrize("word", ["data/a.bin", "--train=data/a.bin", "data"])
def test_a_link_to_a_disk_is_told_before_the_start_where_the_command_names_it_and_nothing_brings_it(experiment, word):
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
    assert missed.hint(words, tmp_path, Choice()).endswith("was not sent (.gitignore names it): --include src/lit/data")
    words = "ended with code 1: ImportError: No module named lit.trian"
    assert missed.hint(words, tmp_path, Choice()) == "src/lit has no trian.py: did you mean lit.train?"


def test_files_that_stayed_here_beside_it_are_named_too_and_credentials_are_not(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.py", "data/train.bin", "data/val.bin", "data/prepare.py", "data/.env", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("*.bin\n.env\nnotes.txt\n")
    words = "FileNotFoundError: [Errno 2] No such file or directory: 'data/val.bin'"
    assert missed.hint(words, tmp_path, Choice()).endswith(": --include data/val.bin --include data/train.bin")


def test_a_variable_of_the_env_that_stayed_here_is_named_with_its_option(folder):
    words = "train.py ended with 1: KeyError: 'KEY'"
    assert "--env-file .env" in missed.hint(words, folder, Choice())
    assert missed.hint(words, folder, Choice(values={"KEY": "1"})) == ""
    assert missed.hint(words.replace("KEY'", "OTHER'"), folder, Choice()) == ""


@pytest.fixture
def corpus(tmp_path):
    """A folder whose data/ a rule keeps here as a whole, and of whose lists/ a part."""
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
def test_however_a_library_names_what_stayed_here_the_option_is_named(corpus, words):
    hint = missed.hint(f"train.py ended with 1: {words}", corpus, Choice(), run="r-1")
    assert hint.endswith("was not sent (.gitignore names it): --include data")


def test_a_folder_that_was_sent_in_part_is_not_what_is_missing(corpus):
    assert not missed.hint("FileNotFoundError: no tables found, 'lists' not found", corpus, Choice())
    assert not missed.hint("KeyError: 'b' not found in lists", corpus, Choice())


def test_an_end_with_a_cause_of_its_own_blames_no_file_that_it_names(corpus):
    words = "RuntimeError: PytorchStreamWriter failed writing file outputs/last.pt: No space left on device"
    assert not missed.hint(words, corpus, Choice())


def test_a_file_that_the_rank_has_is_not_what_it_misses(corpus):
    words = "FileNotFoundError: 'data/corpus/train.txt'"
    assert not missed.hint(words, corpus, Choice(), host_paths={"work/data/corpus/train.txt"})


def test_what_an_earlier_run_here_left_beside_it_is_no_reason_to_send_it(corpus):
    words = "FileNotFoundError: Checkpoint file not found: /muster/run/work/outputs/epoch_5.ckpt"
    assert not missed.hint(words, corpus, Choice())


def test_a_folder_that_a_script_would_write_to_is_not_to_be_sent(corpus):
    assert not missed.hint("RuntimeError: Parent directory ./outputs does not exist.", corpus, Choice())
    assert not missed.hint("RuntimeError: Parent directory outputs does not exist.", corpus, Choice())


@pytest.mark.parametrize(
    ("module", "package"),
    [("PIL", "pillow"), ("cv2", "opencv-python-headless"), ("sklearn.svm", "scikit-learn"), ("pkg_resources", "setup")],
)
def test_a_package_that_is_not_called_as_its_module_is_has_its_own_name(folder, module, package):
    words = f"ModuleNotFoundError: No module named '{module}'"
    assert missed.hint(words, folder, Choice(), "requirements.txt").startswith(f"add {package}")
