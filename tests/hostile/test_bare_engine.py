"""Attacks on the engine of bare hosts: odd requests, files planted in its folders, processes of its containers."""

import csv
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.engine import install_bare
from deploy.host import logs
from lab.waiting import until

ENGINE = Path(__file__).resolve().parents[2] / "deploy/engine"
CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bare.main import main; sys.exit(main())"
SLEEPS = "import subprocess, time; subprocess.Popen(['sleep', '7778'], start_new_session=True, env={}); time.sleep(600)"


@pytest.fixture
def engine(tmp_path):
    """engine(WORD, ...) runs a command of the engine in its own home; at the end every container is removed."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    begun = [sys.executable, "-I", "-S", "-c", CODE, str(ENGINE)]
    given = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def run(*words, text=None, check=True):
        done = subprocess.run([*begun, *words], env=given, input=text, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stderr
        return done

    run.home, run.root = home, home / ".muster/bare" / os.uname().nodename
    run.popen = lambda *words, **how: subprocess.Popen([*begun, *words], env=given, **how)
    run("image", "add", "muster-bare:python", "")
    yield run
    for id in run("ps", "--all", "--quiet").stdout.split():
        run("rm", "--force", id)


def start(engine, code, *options, name="c1"):
    words = ("run", "--detach", "--name", name, *options, "--entrypoint", "python", "muster-bare:python", "-c", code)
    return engine(*words).stdout.strip()


def state(engine, name="c1"):
    return json.loads(engine("inspect", "--format", "{{json .State}}", name).stdout)


def pid_of(engine, id):
    return json.loads((engine.root / "containers" / id / "state.json").read_text())["Pid"]


def living(words):
    seen = subprocess.run(["pgrep", "-f", words], capture_output=True, text=True).stdout.split()
    return [pid for pid in seen if Path(f"/proc/{pid}/stat").exists()]


def test_a_child_that_leaves_its_session_and_clears_its_variables_ends_with_its_container(engine):
    start(engine, SLEEPS.replace("7778", "7781"))
    until(lambda: living("^sleep 7781"), "the child", 20)
    engine("rm", "--force", "c1")
    assert not living("^sleep 7781")


def test_no_process_is_left_when_all_keepers_of_a_container_are_killed_together(engine):
    id = start(engine, SLEEPS.replace("7778", "7782"))
    until(lambda: (engine.root / "containers" / id / "hidden.json").exists(), "its hidden child to be noted", 20)
    for pid in [*living(f"keep {id}"), str(pid_of(engine, id))]:
        os.kill(int(pid), signal.SIGKILL)
    until(lambda: state(engine)["Status"] == "exited", "the next look to see it", 20)
    assert state(engine)["ExitCode"] == 137
    assert not living("^sleep 7782")


def test_a_container_with_rm_is_removed_at_the_next_look_if_its_keepers_were_killed(engine):
    id = start(engine, "import time; time.sleep(600)", "--rm")
    folder, scratch = engine.root / "containers" / id, Path(f"/tmp/muster-{id[:12]}")
    assert scratch.is_dir()
    for pid in [*living(f"keep {id}"), str(pid_of(engine, id))]:
        os.kill(int(pid), signal.SIGKILL)
    until(lambda: not engine("ps", "--all", "--quiet").stdout, "the next look to see it", 20)
    assert not folder.exists()
    assert not scratch.exists()


def test_removing_a_container_leaves_other_containers_and_the_users_processes_alone(engine):
    own = subprocess.Popen(["sleep", "7783"])
    start(engine, "import time; time.sleep(600)", name="c1")
    start(engine, "import time; time.sleep(600)", name="c2")
    engine("rm", "--force", "c1")
    assert state(engine, "c2")["Status"] == "running"
    assert own.poll() is None
    own.kill()


def test_a_reused_process_number_gets_no_signal(engine):
    # This process starts first: the kernel counts start times in hundredths of a second, so two starts within one
    # hundredth would look the same.
    other = subprocess.Popen(["sleep", "7784"])
    id = start(engine, "import time; time.sleep(600)")
    path = engine.root / "containers" / id / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "Pid": other.pid}))
    engine("rm", "--force", "c1")
    assert other.poll() is None
    other.kill()


def test_a_program_that_is_not_there_is_named_once_and_leaves_nothing(engine):
    done = engine("run", "--detach", "--name", "c1", "--entrypoint", "nosuch", "muster-bare:python", check=False)
    words = "Error response from daemon: cannot start nosuch: [Errno 2] No such file or directory: 'nosuch'\n"
    assert (done.returncode, done.stderr) == (125, words)
    assert not engine("ps", "--all", "--quiet").stdout


@pytest.mark.parametrize("name", ["../c", "a/b", "", "-x", "c\n", "c" * 300])
def test_no_name_leads_out_of_the_engines_folders(engine, name):
    def files():
        return {path for path in engine.home.rglob("*") if path.name != ".adding"}

    before = files()
    engine("volume", "rm", name, check=False)
    done = engine("create", "--name", name, "muster-bare:python", "true", check=False)
    assert done.returncode == 125, done.stdout
    assert files() == before


def test_a_truncated_request_is_not_carried_out(engine):
    start(engine, "import time; time.sleep(600)")
    for text in ("POST /containers/c1/kill HTTP/1.1\r\nHost: x\r\n", "POST /containers/c1/kill HTTP/1.1"):
        assert not engine("system", "dial-stdio", text=text).stdout
    assert state(engine)["Status"] == "running"


def test_bytes_right_after_a_request_are_the_commands_input(engine):
    start(engine, "import time; time.sleep(600)")
    asked = json.dumps({"Cmd": ["cat"], "AttachStdin": True})
    head = "HTTP/1.1\r\nContent-Length: {}\r\n\r\n"
    made = engine("system", "dial-stdio", text=f"POST /containers/c1/exec {head.format(len(asked))}{asked}").stdout
    id = json.loads(made.split("\n\n")[1])["Id"]
    answer = engine("system", "dial-stdio", text=f"POST /exec/{id}/start {head.format(2)}{{}}all of it").stdout
    assert answer.endswith("all of it")


def test_a_link_planted_in_place_of_the_scratch_folder_gets_no_files(engine, tmp_path):
    id = engine("create", "--name", "c1", "--entrypoint", "python", "muster-bare:python", "-c", "0").stdout.strip()
    trap = tmp_path / "trap"
    trap.mkdir()
    scratch = Path(f"/tmp/muster-{id[:12]}")
    scratch.symlink_to(trap)
    try:
        done = engine("start", "c1", check=False)
        assert "belongs to somebody else" in done.stderr
        assert not list(trap.iterdir())
    finally:
        scratch.unlink(missing_ok=True)


def test_other_users_can_read_nothing_of_a_container(engine):
    id = start(engine, "import time; time.sleep(600)", "--env", "A=b")
    folders = [engine.home / ".muster/bare", engine.root / "containers" / id, Path(f"/tmp/muster-{id[:12]}")]
    assert {oct(folder.stat().st_mode & 0o77) for folder in folders} == {"0o0"}


def test_user_variables_keep_container_paths_and_musters_own_get_host_paths(engine, tmp_path):
    (tmp_path / "sent").mkdir()
    mount = ("--mount", f"type=bind,source={tmp_path}/sent,target=/workspace,readonly")
    given = ("--env", "DATA=/workspace/data", "--env", "MUSTER_SENT=/workspace", "--env", "PYTHONPATH=/workspace:/x")
    show = "import os; print(*(os.environ[name] for name in ('DATA', 'MUSTER_SENT', 'PYTHONPATH')))"
    words = ("run", "--rm", *mount, *given, "--entrypoint", "python", "muster-bare:python", "-c", show)
    assert engine(*words).stdout == f"/workspace/data {tmp_path}/sent {tmp_path}/sent:/x\n"


def test_a_variable_keeps_a_carriage_return_in_it(engine, tmp_path):
    (tmp_path / "variables").write_bytes(b"A=x\ry=2\n")
    show = "import os; print(repr(os.environ['A']), 'y' in os.environ)"
    words = ("--env-file", tmp_path / "variables", "--entrypoint", "python", "muster-bare:python", "-c", show)
    assert engine("run", "--rm", *words).stdout == "'x\\ry=2' False\n"


def test_a_script_finds_data_where_the_host_has_it(engine, tmp_path):
    """This also holds if the data's path in the container is a prefix of a path on the host."""
    above, mounts, names = f"/{tmp_path.parts[1]}", [], ["corpus", "odd, more"]
    for name, target in zip(names, (above, "/corpus"), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        mounts += ["--mount", f'type=bind,"source={tmp_path / name}",target={target},readonly']
    given = ("--env", f"MUSTER_DATA=/corpus:{above}", "--label", "muster.data.0123=/corpus")
    show = "import os; print([open(f'{place}/file').read() for place in os.environ['MUSTER_DATA'].split(':')])"
    done = engine("run", "--rm", *mounts, *given, "--entrypoint", "python", "muster-bare:python", "-c", show)
    assert done.stdout == f"{names[::-1]}\n"


def test_inspect_names_a_containers_packages_volume_for_a_host_that_joins(engine):
    engine("volume", "create", "muster-packages-1")
    start(engine, "pass", "--mount", "type=volume,source=muster-packages-1,target=/muster/packages")
    where = '{{range .Mounts}}{{if eq .Destination "/muster/packages"}}{{.Name}}{{end}}{{end}}'
    assert engine("inspect", "--format", where, "c1").stdout.strip() == "muster-packages-1"


def test_an_unused_environment_can_be_removed_together_with_its_image(engine):
    """An environment contains torch, which is gigabytes, and there is one for each version ever used."""
    engine("volume", "create", "v1")
    engine("image", "add", "muster-bare:torch", "v1")
    id = engine("create", "muster-bare:torch", "true").stdout.strip()
    assert "in use" in engine("volume", "rm", "v1", check=False).stderr
    engine("rm", id)
    engine("volume", "rm", "v1")
    assert "No such image" in engine("image", "inspect", "muster-bare:torch", check=False).stderr


def test_removing_a_volume_deletes_no_file_behind_a_link_in_it(engine, tmp_path):
    (tmp_path / "keep").write_text("mine")
    engine("volume", "create", "v1")
    (engine.root / "volumes/v1/data/link").symlink_to(tmp_path)
    engine("volume", "rm", "v1")
    assert (tmp_path / "keep").read_text() == "mine"


def test_invalid_requests_are_refused_and_the_next_request_is_answered(engine):
    odd = ["GET /exec/../json", "GET /containers/%2e%2e%2fimages/json", "POST /nothing", "DELETE /volumes/%2e%2e"]
    text = "".join(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n" for line in [*odd, "GET /containers/json"])
    answers = engine("system", "dial-stdio", text=text).stdout.split("HTTP/1.1 ")[1:]
    assert [answer[0] for answer in answers] == ["4", "4", "4", "4", "2"]
    assert engine.root.is_dir()


def test_a_home_below_a_mounted_container_path_is_found(engine, tmp_path):
    """Example: all of the host's files are below /workspace, and the container has the sent folder at /workspace."""
    inside = str(engine.root)
    mounted = ("--mount", f"type=bind,source={tmp_path},target=/{inside.split('/')[1]}")
    words = ("--entrypoint", "python", "muster-bare:python", "-c", "import sys; print(sys.executable)")
    assert engine("run", "--rm", *mounted, *words).stdout.startswith(inside)


def test_a_container_uses_the_compiled_files_of_pythons_standard_library(engine):
    words = ("--entrypoint", "python", "muster-bare:python", "-c", "import csv; print(csv.__cached__)")
    cached = Path(engine("run", "--rm", *words).stdout.strip())
    assert cached.is_relative_to(engine.root)
    assert cached.resolve() == Path(csv.__cached__).resolve()


def test_a_container_keeps_working_when_its_image_name_gets_new_content(engine):
    """Example: another project's folder has the same name, or the host gets another Python."""
    start(engine, "import time; time.sleep(600)")
    engine("volume", "create", "another-1")
    engine("image", "add", "muster-bare:python", "another-1")
    assert engine("exec", "c1", "python", "-c", "import os; print(os.environ['PYTHONUNBUFFERED'])").stdout == "1\n"


def test_following_a_log_gets_all_lines_when_the_log_rotates(engine, tmp_path):
    """A log has two files of 50 MB, and a long run fills both again and again."""
    lines, wide = 6_000, 10_000
    pause = f"while i == 9 and not os.path.exists('{tmp_path}/go'): time.sleep(0.1)"
    start(engine, f"import os, time\nfor i in range({lines}):\n print(i, 'x' * {wide}, flush=True)\n {pause}")
    with open(tmp_path / "seen", "wb") as seen:
        follower = engine.popen("logs", "--follow", "c1", stdout=seen)
        until(lambda: (tmp_path / "seen").stat().st_size > wide, "the follower to be there", 30)
        (tmp_path / "go").touch()
        follower.wait(120)
    numbers = [int(line.split()[0]) for line in (tmp_path / "seen").read_bytes().splitlines()]
    assert numbers == [*range(lines)]


def test_a_long_line_stays_one_line_and_an_unfinished_line_gets_an_end(engine):
    """As with Docker, the reader of a log removes the timestamps before the pieces of a long line."""
    start(engine, "print('x' * 40_000); print('end', end='')")
    until(lambda: state(engine)["Status"] == "exited", "its end", 20)
    long, short = engine("logs", "--timestamps", "c1").stdout.splitlines()
    assert logs.split(long)[1] == "x" * 40_000
    assert logs.split(short)[1] == "end"


@pytest.fixture
def small_home(tmp_path):
    """A home on a disk of 2 MB, which a test can fill to the last byte."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", home], check=True)
    yield home
    subprocess.run(["umount", "--lazy", home], check=True)


def test_a_full_disk_ends_no_container_and_its_exit_code_is_still_known(small_home, engine):
    """Although the engine cannot write its notes: about a process that hides, and the container's exit code."""
    waits = f"while open({str(small_home / 'go')!r}).read() != 'go': time.sleep(0.1)"
    hides = "subprocess.Popen(['sleep', '7785'], env={}, start_new_session=True)"
    (small_home / "go").write_text("no")
    start(engine, f"import subprocess, sys, time\n{waits}\n{hides}\ntime.sleep(4)\nsys.exit(3)")
    until(lambda: state(engine)["Status"] == "running", "it to run", 20)
    with suppress(OSError):
        (small_home / "checkpoint").write_bytes(bytes(2 << 20))
    (small_home / "go").open("r+").write("go")
    until(lambda: state(engine)["Status"] == "exited", "its end", 30)
    assert state(engine)["ExitCode"] == 3
    (small_home / "checkpoint").unlink()


def test_a_node_can_be_stopped_and_removed_on_a_disk_without_free_inodes(small_home, engine):
    start(engine, "import sys, time; time.sleep(600)", "--restart", "on-failure:3")
    seen = os.statvfs(small_home)
    full = f"remount,size=2m,nr_inodes={seen.f_files - seen.f_ffree}"
    subprocess.run(["mount", "-o", full, small_home], check=True)
    with pytest.raises(OSError, match="No space left"):
        (small_home / "checkpoint").touch()
    engine("system", "dial-stdio", text="POST /containers/c1/kill?signal=SIGTERM HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: state(engine)["Status"] == "exited", "its end", 20)
    engine("rm", "--force", "c1")
    assert not engine("ps", "--all", "--quiet").stdout


def test_tmp_cleaners_leave_the_files_of_a_long_run(engine):
    """systemd-tmpfiles skips a locked folder; otherwise a run's secrets and TMPDIR would be gone after ten days."""
    id = start(engine, "import time; time.sleep(600)")
    scratch = os.open(f"/tmp/muster-{id[:12]}", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(scratch, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(scratch)


def test_the_list_of_containers_has_their_creation_times(engine):
    """Otherwise `muster status` would show the step of a rank from an earlier start of the run."""
    start(engine, "import time; time.sleep(600)")
    answer = engine("system", "dial-stdio", text="GET /containers/json HTTP/1.1\r\nHost: x\r\n\r\n").stdout
    (listed,) = json.loads(answer.split("\n\n")[1])
    assert abs(listed["Created"] - time.time()) < 60


def test_a_node_that_is_asked_to_stop_is_not_started_again(engine, tmp_path):
    """`muster stop` sends SIGINT, and a node that stops gracefully ends with code 75."""
    lives = tmp_path / "lives"
    ends = "signal.signal(signal.SIGINT, lambda *_: sys.exit(75))"
    code = f"import signal, sys, time; {ends}; open({str(lives)!r}, 'a').write('x'); time.sleep(600)"
    start(engine, code, "--restart", "on-failure:3")
    until(lambda: lives.exists() and lives.read_text(), "it to run", 20)
    engine("system", "dial-stdio", text="POST /containers/c1/kill?signal=SIGINT HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: state(engine)["Status"] == "exited", "its end", 20)
    assert (state(engine)["ExitCode"], lives.read_text()) == (75, "x")


def test_a_node_kept_by_an_earlier_version_gets_its_stop_mark(engine):
    id = start(engine, "import time; time.sleep(600)", "--restart", "on-failure:3")
    (folder,) = (engine.home / ".muster/bare").glob(f"*/containers/{id}")
    (folder / "wanted").unlink()
    engine("system", "dial-stdio", text="POST /containers/c1/kill?signal=SIGTERM HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (folder / "stopped").exists()


def test_a_container_waiting_for_its_restart_is_removed_immediately_and_for_good(engine, tmp_path):
    """The pause before each restart is twice as long as the one before: up to a minute, after ten restarts."""
    lives = tmp_path / "lives"
    start(engine, f"open({str(lives)!r}, 'a').write('x'); exit(1)", "--restart", "on-failure:20")
    until(lambda: lives.exists() and len(lives.read_text()) == 7, "a pause of 13 s", 60)
    until(lambda: state(engine)["Status"] == "restarting", "its pause", 10)
    keepers = living("keep " + engine("ps", "--quiet", "--no-trunc").stdout.strip())
    began = time.monotonic()
    engine("rm", "--force", "c1")
    assert time.monotonic() - began < 8
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in keepers), "its keepers' end", 20)
    assert len(lives.read_text()) == 7


def test_a_running_command_survives_another_muster_version_at_its_login(engine):
    """A running engine starts itself again from its own folder for each command in a container. Old folders go."""
    place, modules = engine.home / ".muster/bin", install_bare._packed()[1]
    (place / "old").mkdir(parents=True)
    os.utime(place / "old", (0, 0))
    for digest in ("first", "second"):
        brought = subprocess.run(
            install_bare._SCRIPT("bring-bare", digest, "", ""),
            env={"HOME": str(engine.home), "PATH": os.environ["PATH"]},
            input=modules,
            capture_output=True,
        )
        assert brought.stdout == b"ready\n"
    assert {path.name for path in place.iterdir()} == {"docker", "first", "second"}
    start(engine, "import time; time.sleep(600)")
    at_work = [sys.executable, "-I", "-S", "-c", CODE, place / "first", "exec", "c1", "echo", "well"]
    given = {"HOME": str(engine.home), "PATH": os.environ["PATH"]}
    assert subprocess.run(at_work, env=given, capture_output=True, text=True).stdout == "well\n"


def test_a_broken_engine_does_not_replace_a_working_one(engine):
    """Example: a full disk. The installed engine has runs, and the user must be able to stop them."""
    broken = json.dumps({"main.py": "def main(): return 3\n"}).encode()
    given = {"HOME": str(engine.home), "PATH": os.environ["PATH"]}
    whole = install_bare._packed()[1]
    for digest, modules, code in (("first", whole, 0), ("second", broken, 3), ("third", whole[:-9], 1)):
        words = install_bare._SCRIPT("bring-bare", digest, "", "")
        assert subprocess.run(words, env=given, input=modules, capture_output=True).returncode == code
    place = engine.home / ".muster/bin"
    assert subprocess.run([place / "docker", "ps"], env=given).returncode == 0
    assert not list(place.glob(".docker.*"))


def test_leftovers_of_a_killed_volume_removal_are_no_volume_and_go_with_the_next(engine):
    """An environment has tens of thousands of files, so its removal takes a while."""
    for name in ("v1", "v2"):
        engine("volume", "create", name)
    data = engine.root / "volumes/v1/data"
    for number in range(20_000):
        (data / str(number)).touch()
    removing = engine.popen("volume", "rm", "v1")
    until(lambda: not data.exists(), "the removal to begin", 20)
    removing.kill()
    removing.wait()
    left = list((engine.root / "volumes").glob(".v1.*"))
    assert left, "the removal was over before it was killed"
    assert engine("volume", "ls").stdout.split() == ["muster-python-" + sys.version.split()[0], "v2"]
    engine("volume", "rm", "v2")
    assert not left[0].exists()


@pytest.mark.parametrize("made", ["", "containers", "images"])
def test_an_interrupted_first_start_is_completed_later(engine, made):
    """A full disk or a kill, or two first starts at the same time, can leave only some of the folders."""
    shutil.rmtree(engine.root)
    (engine.root / made).mkdir(parents=True)
    engine("image", "add", "muster-bare:python", "")
    assert start(engine, "pass")


def test_a_container_with_rm_that_never_started_is_removed(engine):
    id = engine("create", "--rm", "--name", "c1", "muster-bare:python", "true").stdout.strip()
    config = engine.root / "containers" / id / "config.json"
    assert engine("ps", "--all", "--quiet").stdout, "somebody may be about to start it"
    config.write_text(json.dumps({**json.loads(config.read_text()), "Created": "2026-01-01T00:00:00.000000000Z"}))
    assert not engine("ps", "--all", "--quiet").stdout
    assert not config.exists()
