"""The completions that the Tab key offers in a real bash (and zsh, if it is installed), isolated from this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest

from deploy.commands import completion, main

BASH = 'COMP_WORDS=(fab "$@"); COMP_CWORD=$#; _muster_complete; printf "%s\\n" "${COMPREPLY[@]}"'
ZSH = """
compdef() { : }; compadd() { shift 2; print -rl -- "$@" }; _files() { : }
source SCRIPT; words=(fab "$@"); CURRENT=${#words}; _muster_complete
"""
CLUSTER = """
[[hosts]]
name = "gpu-a"
[[hosts]]
name = "$(touch owned)"
[job]
name = "no-host"
"""
SETTINGS = "Include conf.d/*\nHost alpha beta-1 *.lab !x\n    HostName 10.0.0.1\nMatch host nothing\nhost Gamma\n"


@pytest.fixture(params=["bash", "zsh"])
def offered(request, tmp_path):
    """Returns offered(word, ..., typed): what the shell completes `typed` to."""
    shell = shutil.which(request.param) or pytest.skip(f"no {request.param} here")
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home / ".ssh", project / "runs" / "2026-one", project / "runs" / "$(touch owned)", project / "sub"):
        folder.mkdir(parents=True)
    (home / ".ssh" / "config").write_text(SETTINGS)
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "lab").write_text("Host delta\n")
    (project / "cluster.toml").write_text(CLUSTER)
    (project / "other.toml").write_text('[[hosts]]\nname = "elsewhere"\n')
    file = tmp_path / "completion"
    file.write_text(completion.script(request.param, main.every_command()))
    code = {"bash": f". {shlex.quote(str(file))}; {BASH}", "zsh": ZSH.replace("SCRIPT", shlex.quote(str(file)))}

    def ask(*words, folder=""):
        line = [shell, "-c", code[request.param], shell, *words]
        told = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(line, cwd=project / folder, env=told, capture_output=True, text=True, timeout=30)
        assert done.stderr == ""
        assert not list(tmp_path.rglob("owned")), "a name of a project's file was run"
        return done.stdout.split()

    return ask


def test_commands_and_their_options_are_offered(offered):
    assert offered("sta") == ["status"]
    assert {"deploy", "attach", "exec", "completion"} <= set(offered(""))
    assert offered("deploy", "--hosts", "a", "--detac") == ["--detach"]
    assert "--name" not in offered("deploy", "--"), "an option that exists only to be refused"


def test_an_option_that_another_one_excludes_is_not_offered(offered):
    assert offered("deploy", "--slu") == ["--slurm"]
    assert offered("deploy", "-H", "a", "--slu") == offered("deploy", "--overlay", "--slu") == []
    assert offered("deploy", "--slurm=login", "--ov") == offered("deploy", "--wait", "--ov") == []
    assert offered("deploy", "--slurm", "login", "--nod") == ["--nodes"]


def test_hosts_come_from_the_cluster_file_and_the_ssh_settings(offered):
    assert offered("status", "--hosts", "") == ["gpu-a", "alpha", "beta-1", "Gamma", "delta"]
    assert offered("status", "--hosts", "gpu-a,al") == ["gpu-a,alpha"]
    assert offered("status", "--hosts", "me@al") == ["me@alpha"]
    assert offered("status", "--cluster", "other.toml", "--hosts", "else") == ["elsewhere"]
    assert offered("deploy", "-H", "gpu-a,al") == ["gpu-a,alpha"]
    assert offered("preflight", "al") == ["alpha"]


def test_hosts_of_a_list_are_offered_where_a_bare_word_means_hosts(offered, tmp_path):
    (tmp_path / "project" / "cluster.toml").write_text("hosts = ['gpu-a', \"me@gpu-b:2222\", '$(touch owned)']\n")
    assert offered("gpus", "") == ["gpu-a", "me@gpu-b:2222", "alpha", "beta-1", "Gamma", "delta"]
    assert offered("status", "2026") == ["2026-one"]


def test_a_pipe_in_place_of_a_cluster_file_blocks_no_shell(offered, tmp_path):
    (tmp_path / "project/cluster.toml").unlink()
    os.mkfifo(tmp_path / "project/cluster.toml")
    assert offered("status", "--hosts", "al") == ["alpha"]


def test_runs_are_offered_in_a_subfolder_too(offered):
    assert offered("attach", "--run", "2026") == ["2026-one"]
    assert offered("deploy", "--resume", "", folder="sub") == ["2026-one", "latest"]
    assert offered("compare", "2026-one", "2026") == ["2026-one"]


def test_values_and_the_users_own_script_are_left_to_the_shells_file_names(offered):
    assert offered("deploy", "--folder", "") == []
    assert offered("deploy", "-H", "a", "tr") == []
    assert offered("deploy", "--hosts", "a", "--", "tr") == []


def test_a_shell_without_a_completion_is_refused_by_name(capsys):
    assert main.run(["completion", "--shell", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
