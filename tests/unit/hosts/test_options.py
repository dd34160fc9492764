"""What a user may ask of real hosts, and what is refused before any host is touched."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError
from deploy.hosts.start import deploy
from deploy.hosts.start.resume import resume_fields
from deploy.job import secrets
from deploy.job.load import (
    environment_of,
    fill_from_file,
    folder_to_send,
    load_cluster,
    read_command,
    script_words,
)
from deploy.job.option_words import grace_s
from deploy.job.options import Options
from deploy.job.secrets import refuse_open_secrets, secrets_of
from deploy.job.values import Mount
from deploy.report.recorder import Recorder
from deploy.send.image.model import tag_of

pytestmark = pytest.mark.usefixtures("allowed")

VALUE = "sesame-4711"


def environment(*given):
    return environment_of(Options(env=given))


def modules(folder):
    """Create a package that can be run, one that cannot, and a single module."""
    for path in ("pkg/__main__.py", "pkg/train.py", "bare/__init__.py", "alone.py"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("")


def asked(**words):
    """Options for one host, as the command line creates them."""
    return Options(hosts="a", **words)


def test_variables_are_given_one_by_one_or_with_commas_and_a_value_may_contain_commas():
    assert environment("A=1", "B=x,y,C=2", "D=") == {"A": "1", "B": "x,y", "C": "2", "D": ""}
    assert environment("FLAGS=--a=1,--b=2") == {"FLAGS": "--a=1,--b=2"}


def test_two_folders_mounted_at_one_path_are_refused(tmp_path, monkeypatch):
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--mount: two folders have the same target, /data"):
        deploy.deploy(asked(script="train.py", mount=("/a:/data", "/b:/data/")), Recorder(lambda event: None))
    (tmp_path / "cluster.toml").write_text(
        '[[hosts]]\nname = "a"\nmounts = ["/a:/data", "/b:/data"]\n[[hosts]]\nname = "b"\n'
    )
    with pytest.raises(UsageError, match="--mount: two folders have the same target, /data"):
        deploy.deploy(replace(asked(script="train.py"), hosts=""), Recorder(lambda event: None))


@pytest.mark.parametrize("given", ["A", "1A=2", "=2", "A B=1", "A=1\nB=2", "A=\udcff"])
def test_an_invalid_variable_is_refused_by_name(given):
    with pytest.raises(UsageError, match="--env"):
        environment(given)


@pytest.mark.parametrize("name", ["MUSTER_RUN_DIR", "PET_NNODES", "PET_RDZV_ENDPOINT", "PET_NPROC_PER_NODE"])
def test_variables_that_the_plan_sets_are_refused(name):
    with pytest.raises(UsageError, match=name):
        environment(f"{name}=1")


@pytest.mark.parametrize("table", ["[job]", "[[hosts]]\nname = 'b'"])
def test_variables_that_the_plan_sets_are_refused_in_the_file_too(tmp_path, table):
    path = tmp_path / "cluster.toml"
    path.write_text(f"[[hosts]]\nname = 'a'\n{table}\nenvironment = {{ PET_NNODES = 3 }}\n")
    with pytest.raises(UsageError, match="PET_NNODES"):
        load_cluster(Options(cluster=str(path)))


def test_variables_that_torchrun_leaves_to_the_user_may_be_set():
    assert environment("PET_MAX_RESTARTS=3") == {"PET_MAX_RESTARTS": "3"}


def test_a_secret_comes_from_this_shell_or_from_a_file(monkeypatch, tmp_path):
    (tmp_path / "key").write_text(f"{VALUE}\n")
    monkeypatch.setenv("HUSH", "from-the-shell")
    options = asked(secret=("HUSH", f"KEY={tmp_path / 'key'}"))
    assert secrets_of(load_cluster(options)) == {"HUSH": "from-the-shell", "KEY": VALUE}


def test_a_secret_file_keeps_its_bytes_and_a_binary_one_is_refused_by_name(tmp_path):
    (tmp_path / "key.pem").write_bytes(b"one\r\ntwo\r\n")
    options = asked(secret_file=(f"key.pem={tmp_path}/key.pem",))
    assert secrets_of(load_cluster(options)) == {"key.pem": "one\r\ntwo\r\n"}
    (tmp_path / "key.pem").write_bytes(b"\x80\xff")
    with pytest.raises(UsageError, match=r"key\.pem as text"):
        secrets_of(load_cluster(options))


@pytest.mark.parametrize("given", [f"HF_TOKEN={VALUE}", f"A={VALUE}\nB=" + "x" * 300])
def test_a_variable_given_as_an_env_file_is_refused_without_its_value(given):
    with pytest.raises(UsageError, match=r"--env-file [A-Z_]+=\.\.\.: this option takes a file") as refused:
        load_cluster(asked(env_file=(given,)))
    assert VALUE not in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("HUSH", None),
        ("HUSH", ""),
        ("HUSH", "x" * 130_000),
        (f"HUSH={VALUE}", None),
        (f"H USH={VALUE}", None),
        (f"HUSH=~nobody/{VALUE}", None),
        (f"HUSH={VALUE * 500}", None),
        ("MUSTER_NODE", "a"),
    ],
    ids=["not set", "empty", "too long", "a value", "no name", "no such user", "no possible file", "the plan's"],
)
def test_a_secret_that_cannot_be_read_is_named_and_never_shown(monkeypatch, given, value):
    monkeypatch.delenv("HUSH", raising=False)
    if value is not None:
        monkeypatch.setenv("HUSH", value)
    with pytest.raises(UsageError, match="secret") as refused:
        secrets_of(load_cluster(asked(secret=(given,))))
    assert VALUE not in refused.value.message + refused.value.hint


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "password", "AWS_SECRET_ACCESS_KEY"])
def test_a_variable_named_like_a_secret_is_refused_with_what_works(name, tmp_path):
    with pytest.raises(UsageError, match=name) as refused:
        environment(f"{name}=sesame-4711")
    assert "sesame" not in str(refused.value)
    assert f"--secret {name}" in refused.value.hint
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(f'[[hosts]]\nname = "a"\n[hosts.environment]\n{name} = "sesame-4711"\n')
    with pytest.raises(UsageError, match=name):
        load_cluster(Options(cluster=str(cluster)))
    assert len(environment("TOKENIZERS_PARALLELISM=disabled-here", "MAX_TOKENS=10000000000")) == 2


@pytest.mark.parametrize("option", ["script", "run", "args", "env", "restart_with", "role"])
@pytest.mark.parametrize("known", ["as a secret of the job", "by its name in this shell"])
def test_a_secret_in_the_open_is_refused_and_not_repeated(monkeypatch, option, known):
    secrets = {"MINE": VALUE} if "job" in known else {}
    if not secrets:
        monkeypatch.setenv("HF_TOKEN", VALUE)
    text = f"train.py --token {VALUE}"
    several = {"env": (f"A={VALUE}",), "role": (f"reward=1:{text}",)}
    options = asked(**{option: several.get(option, text)})
    with pytest.raises(UsageError, match="contains the value of") as refused:
        refuse_open_secrets(options, secrets)
    assert VALUE not in refused.value.message + refused.value.hint
    assert "--secret" in refused.value.hint


def test_a_secret_with_a_quote_is_found_in_the_typed_command():
    with pytest.raises(UsageError, match="contains the value of MINE"):
        refuse_open_secrets(asked(script=shlex.join(["train.py", "--password=it's-4711"])), {"MINE": "it's-4711"})


def test_an_open_secret_in_another_role_reaches_no_host(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", VALUE)
    (tmp_path / "serve.py").touch()
    roles = ["--role", "train=1:python serve.py", "--role", f"reward=1:python serve.py {VALUE}"]
    assert main.run(["deploy", "--hosts", "127.0.0.1:1,127.0.0.1:2", *roles]) == 2
    shown = capsys.readouterr().err
    assert "contains the value of HF_TOKEN" in shown
    assert VALUE not in shown


def test_an_ordinary_command_is_not_taken_for_a_secret(monkeypatch):
    monkeypatch.setenv("SSH_KEY_TOKEN", "1")
    refuse_open_secrets(asked(script="train.py --lr 1", env=("A=1",)), {})


@pytest.mark.parametrize(
    "text", ["/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/", "/a:/muster/run/", "/a:/muster", "/\udcff:/a", "/a:/b,/c:/d", ""]
)
def test_an_invalid_mount_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=f"--mount {re.escape(text)}: not ") as refused:
        load_cluster(asked(mount=(text,)))
    assert "--mount /data:/data:ro" in refused.value.hint


def test_a_typed_mount_overrides_those_of_the_file_at_the_same_path(tmp_path):
    path = tmp_path / "cluster.toml"
    job = '[job]\nmounts = ["/old:/data", "/kept:/kept"]\n'
    path.write_text(f'{job}[[hosts]]\nname = "a"\nmounts = ["/own:/data", "/scratch:/scratch"]\n')
    made = load_cluster(Options(cluster=str(path), mount=("/new:/data:ro",)))
    assert made.job.mounts == (Mount("/kept", "/kept", False), Mount("/new", "/data", True))
    assert made.hosts[0].mounts == (Mount("/scratch", "/scratch", False),)


@pytest.mark.parametrize("text", ["zero", "0", "-1", "1025", "1.5", "²", "9" * 5000])
def test_an_invalid_number_of_processes_is_refused(text):
    with pytest.raises(UsageError, match="--nproc"):
        load_cluster(asked(nproc=text))


def test_a_flag_overrides_the_file(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[[hosts]]\nname = "a"\n[job]\nprocesses = 2\nsecrets = ["HUSH", "OTHER"]\n')
    (tmp_path / "hush").write_text(VALUE)
    job = load_cluster(Options(cluster=str(path), nproc="auto", secret=(f"HUSH={tmp_path / 'hush'}",))).job
    assert job.processes == "auto"
    assert {secret.name: bool(secret.file) for secret in job.secrets} == {"OTHER": False, "HUSH": True}


def test_one_typo_among_400_hosts_is_named_alone():
    hosts = [f"gpu-{number}" for number in range(400)]
    hosts[217] = "gpu 217"
    with pytest.raises(UsageError) as refused:
        load_cluster(Options(hosts=",".join(hosts)))
    assert "gpu 217" in refused.value.message
    assert len(refused.value.message) < 200


def test_a_host_that_is_named_twice_among_400_is_named_alone():
    hosts = [f"gpu-{number}" for number in range(400)]
    with pytest.raises(UsageError) as refused:
        load_cluster(Options(hosts=",".join([*hosts, "gpu-31"])))
    assert "gpu-31 " in refused.value.message
    assert len(refused.value.message) < 200


def test_the_script_must_be_in_the_folder(tmp_path):
    (tmp_path / "train.py").write_text("")
    assert folder_to_send(asked(script="train.py --lr 1", folder=str(tmp_path)), load_cluster(asked())) == tmp_path
    with pytest.raises(UsageError, match=r"trian\.py"):
        folder_to_send(asked(script="trian.py", folder=str(tmp_path)), load_cluster(asked()))
    with pytest.raises(UsageError, match="no such folder"):
        folder_to_send(asked(script="train.py", folder=str(tmp_path / "none")), load_cluster(asked()))
    with pytest.raises(UsageError, match="no such folder"):
        folder_to_send(asked(script="train.py", folder="x" * 300), load_cluster(asked()))
    with pytest.raises(UsageError, match="the whole machine") as refused:
        folder_to_send(asked(script="'home/my self/train.py'", folder="/"), load_cluster(asked()))
    assert refused.value.hint.endswith("cd 'home/my self'")


@pytest.mark.parametrize("name", ["pkg.train", "pkg", "alone", "of_the_image.train"])
def test_a_module_is_in_the_folder_or_in_the_image(tmp_path, name):
    modules(tmp_path)
    assert folder_to_send(asked(script=f"-m {name} --lr 1", folder=str(tmp_path)), load_cluster(asked())) == tmp_path


@pytest.mark.parametrize("name", ["pkg.trian", "pkg.train.more", "bare", "alone.more", "..", "/etc"])
def test_a_module_that_is_not_in_its_package_is_refused(tmp_path, name):
    modules(tmp_path)
    with pytest.raises(UsageError, match=rf"^-m {name}: no "):
        folder_to_send(asked(script=f"-m {name}", folder=str(tmp_path)), load_cluster(asked()))


@pytest.mark.parametrize(
    ("typed", "meant"), [("pkg.trian", "pkg.train"), ("pkg.evla", "pkg.eval"), ("pkg.mian", ""), ("pkg.ini", "")]
)
def test_a_mistyped_module_is_answered_with_one_that_can_run(tmp_path, typed, meant):
    for path in ("train.py", "__init__.py", "main/__init__.py", "eval/__main__.py"):
        (tmp_path / "pkg" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pkg" / path).touch()
    with pytest.raises(UsageError) as refused:
        folder_to_send(asked(script=f"-m {typed}", folder=str(tmp_path)), load_cluster(asked()))
    assert refused.value.hint.partition("?")[0] == (f"did you mean -m {meant}" if meant else refused.value.hint)


@pytest.mark.parametrize(
    ("name", "tag"), [("My Folder", "my-folder"), ("ünï", "n"), ("日本", "run"), ("a" * 300, "a" * 100), ("--", "run")]
)
def test_any_folder_name_gives_an_image_name(tmp_path, name, tag):
    folder = tmp_path / name[:200]
    assert tag_of("base", folder) == f"muster-{tag}:latest"


def test_the_ranks_of_a_typed_torchrun_become_nproc():
    plain, command = read_command(asked(script="torchrun --nproc-per-node 2 train.py --name 'two words'"))
    assert script_words(plain) == command.words == ("train.py", "--name", "two words")
    assert plain.nproc == "2"
    with pytest.raises(UsageError, match="the script's command says 2"):
        read_command(asked(script="torchrun --nproc-per-node 2 train.py", nproc="3"))


@pytest.mark.parametrize("path", ["data", "/", "/muster/run/x", "/a/../muster", "//a", "/a\nb", ""])
def test_a_path_that_cannot_be_kept_is_refused(path):
    with pytest.raises(UsageError, match="--keep"):
        load_cluster(Options(hosts="a", keep=(path,)))


@pytest.mark.parametrize("more", [{"keep": ("/data", "/data/out")}, {"keep": ("/data/out",), "mount": ("/x:/data",)}])
def test_a_kept_path_inside_another_mounted_one_is_refused(more):
    with pytest.raises(UsageError, match="/data is mounted too"):
        load_cluster(Options(hosts="a", **more))


def test_kept_paths_of_the_file_and_of_the_flag_are_both_kept(tmp_path):
    (tmp_path / "cluster.toml").write_text('[job]\nkeep = ["/a", "/data/"]\n[[hosts]]\nname = "a"\n')
    assert load_cluster(Options(cluster=str(tmp_path / "cluster.toml"), keep=("/b", "/a"))).job.keep == (
        "/a",
        "/data",
        "/b",
    )


def test_fab_deploy_alone_follows_the_file_and_a_flag_overrides_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / ".env").write_text("TOKEN=sesame-4711\nSHOWN=1\n")
    (tmp_path / "cluster.toml").write_text(
        '[[hosts]]\nname = "a"\n[job]\nscript = "train.py --lr 3e-4"\nfolder = "code"\nrestarts = 2\nrank = "all"\n'
        'observe = false\nenv_file = ".env"\ncache = false\nfolder_limit = "4g"\nmounts = ["/data:/data:create"]\n'
        'environment = { SHOWN = "2" }\n'
    )
    filled = fill_from_file(Options())
    assert (filled.script, filled.folder, filled.restarts) == ("train.py --lr 3e-4", "code", "2")
    assert (filled.rank, filled.no_observe) == ("all", True)
    job = load_cluster(filled).job
    assert (job.cache, job.folder_limit) == (False, 4 << 30)
    assert job.mounts[0].create
    assert secrets_of(load_cluster(filled)) == {"TOKEN": "sesame-4711"}, "an open variable of the same name holds"
    other = fill_from_file(Options(script="other.py", restarts="0", rank="1", folder="x"))
    assert (other.script, other.restarts, other.rank, other.folder) == ("other.py", "0", "1", "x")
    assert fill_from_file(Options(args="--steps 5")).script == ""
    assert fill_from_file(Options(resume="latest")).script == ""


def test_what_is_typed_wins_over_the_file_although_the_scripts_command_says_it(tmp_path, monkeypatch):
    """Once, `restarts` of the file made `torchrun --max-restarts 1` a refusal: "leave out --restarts"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.toml").write_text('[[hosts]]\nname = "a"\n[job]\nrestarts = 3\n')
    typed = Options(script="torchrun --max-restarts 1 train.py")
    assert read_command(fill_from_file(typed), typed)[0].restarts == "1"
    with pytest.raises(UsageError, match="--restarts 2: the script's command says 1"):
        read_command(fill_from_file(replace(typed, restarts="2")), replace(typed, restarts="2"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    Path("cluster.toml").write_text(
        '[[hosts]]\nname = "a"\n[job]\nscript = "torchrun --max-restarts 3 --nproc-per-node 4 train.py"\n'
    )
    for typed, wanted in ((Options(), ("4", "3")), (Options(nproc="2", restarts="0"), ("2", "0"))):
        options, _ = read_command(fill_from_file(typed), typed)
        assert (options.nproc, options.restarts) == wanted


def test_a_secret_is_a_variable_or_a_file_and_not_both(tmp_path):
    (tmp_path / "key").write_text("sesame-4711")
    typed = Options("a", secret=("TOKEN",), secret_file=(f"TOKEN={tmp_path / 'key'}",))
    with pytest.raises(UsageError, match="secret TOKEN: --secret and --secret-file give it"):
        load_cluster(typed)
    (tmp_path / "cluster.toml").write_text(
        '[[hosts]]\nname = "a"\n[job]\nsecrets = ["TOKEN", { name = "TOKEN", file = "key", as_file = true }]\n'
    )
    with pytest.raises(UsageError, match=r"secret TOKEN: `secrets` of cluster\.toml give it"):
        load_cluster(Options(cluster=str(tmp_path / "cluster.toml")))


@pytest.mark.parametrize(
    "line",
    [
        "script = 3",
        'script = " "',
        "restarts = -1",
        'script = "a.py"\nargs = "--steps 1"',
        'env_file = ".none"',
        'cache = "no"',
        "wait_lost = 600",
    ],
)
def test_a_wrong_setting_of_the_job_is_named(tmp_path, line):
    (tmp_path / "cluster.toml").write_text(f'[[hosts]]\nname = "a"\n[job]\n{line}\n')
    with pytest.raises(UsageError, match=r"job\."):
        fill_from_file(Options(cluster=str(tmp_path / "cluster.toml")))


def test_wait_lost_has_a_unit_and_the_flag_overrides_the_file(tmp_path):
    (tmp_path / "cluster.toml").write_text('[[hosts]]\nname = "a"\n[job]\nwait_lost = "30m"\n')
    file = str(tmp_path / "cluster.toml")
    assert load_cluster(Options(cluster=file)).job.wait_lost == 1800
    assert load_cluster(Options(cluster=file, wait_lost="90s")).job.wait_lost == 90
    assert "--wait-lost 90s" in resume_fields(Options(wait_lost="90s"))["again"]
    for text in ("600", "0s", "-5m", "10 m", "1d"):
        with pytest.raises(UsageError, match="--wait-lost"):
            load_cluster(Options(hosts="a", wait_lost=text))


def test_a_setting_of_an_env_file_may_be_an_argument_too_but_a_token_may_not(tmp_path):
    (tmp_path / ".env").write_text("MODEL=llama-7b-chat\nHF_TOKEN=hf_sesame_4711\nDB=postgres://me:word@db/x\n")
    options = asked(env_file=(str(tmp_path / ".env"),))
    cluster = load_cluster(options)
    telling = secrets.values_to_hide(cluster.job.secrets, secrets_of(cluster))
    assert set(telling) == {"HF_TOKEN", "DB"}
    refuse_open_secrets(asked(script="train.py --model llama-7b-chat"), telling)
    with pytest.raises(UsageError, match="HF_TOKEN"):
        refuse_open_secrets(asked(script="train.py --token hf_sesame_4711"), telling)


@pytest.mark.parametrize(("typed", "grace"), [("", 300.0), ("90s", 90.0)])
def test_a_stop_waits_for_the_grace_of_cluster_toml_or_the_typed_one(tmp_path, monkeypatch, typed, grace):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "cluster.toml").write_text('hosts = ["a"]\n[job]\ngrace = "5m"\n')
    monkeypatch.chdir(tmp_path)
    start = deploy._OnHosts(Options(script="train.py", grace=typed), Recorder(lambda event: None), None)
    _, work = start._load()
    assert work.ends == {"MUSTER_GRACE": f"{grace:g}"}
    assert grace_s(resume_fields(start._options)) == grace
