"""Pushed folders are read-only in a run's containers, with the labels and digests that `clean` and the agent use."""

from __future__ import annotations

from types import SimpleNamespace

from deploy.core.names import node_name
from deploy.hosts.node import sent_folders
from deploy.hosts.node.container import NodeContainer
from deploy.hosts.node.docker_run import DockerRun
from deploy.send.folder.content import HostFolder

CODE = HostFolder("/h/c0de", "/muster/code", "c0de")
FOLDER = HostFolder("/h/f01d,er", "/workspace", "f01d")
BESIDE = {"a": SimpleNamespace(folders=(CODE, FOLDER))}


def node(**variables):
    def made(**more):
        docker = DockerRun("muster-r1", {}, ("--init",), "app:latest", ("-m", "agent"))
        return NodeContainer("a", node_name("a"), "r1", "app:latest", "/r1", "", docker, variables, **more)

    return made(witness=made(), overlay=DockerRun("muster-r1-overlay", {}, ("--init",), "app:latest", ("-m", "agent")))


def test_each_container_of_a_node_has_the_folders_read_only_and_labels_that_name_them():
    (given,) = sent_folders.mount_folders([node()], BESIDE)
    options = (
        *("--mount", "type=bind,source=/h/c0de,target=/muster/code,readonly"),
        *("--mount", 'type=bind,"source=/h/f01d,er",target=/workspace,readonly'),
        *("--label", "muster.code=c0de", "--label", "muster.folder=f01d", "--workdir", "/workspace"),
    )
    assert given.docker.options == given.witness.docker.options == ("--init", *options)
    of_root = ("--mount", "type=bind,source=/h/c0de,target=/muster/code,readonly", "--label", "muster.code=c0de")
    assert given.overlay.options == ("--init", *of_root), "what is root sees no folder of the user's"
    digests = {"MUSTER_CODE_DIGEST": "c0de", "MUSTER_SENT_DIGEST": "f01d"}
    assert given.environment == given.witness.environment == digests
    assert sent_folders.digest_of(BESIDE) == "f01d"


def test_data_is_mounted_read_only_where_asked_and_the_script_is_told_where():
    data = [HostFolder(f"/h/data/d{at}", f"/data{at}", f"d{at}") for at in ("", "/x")]
    (given,) = sent_folders.mount_folders([node()], {"a": SimpleNamespace(folders=(FOLDER, *data))})
    options = given.docker.options
    for at in ("", "/x"):
        assert f"type=bind,source=/h/data/d{at},target=/data{at},readonly" in options
        assert f"muster.data.d{at}=/data{at}" in options
    assert (
        given.environment == given.witness.environment == {"MUSTER_SENT_DIGEST": "f01d", "MUSTER_DATA": "/data:/data/x"}
    )
    labels = {"muster.folder": "f01d", "muster.data.d": "/data", "muster.data.e": "/x", "muster.run": "r"}
    assert sent_folders.words_of(labels) == {"f01d", "d", "e"}
    assert sent_folders.data_of({"a": SimpleNamespace(folders=(FOLDER, *data))}) == {"/data": "d", "/data/x": "d/x"}


def test_a_python_path_of_the_users_does_not_hide_the_agent():
    (given,) = sent_folders.mount_folders([node(PYTHONPATH="/muster:/mine")], BESIDE)
    assert given.environment["PYTHONPATH"] == "/muster/code:/muster:/mine"


def test_a_container_is_unchanged_if_nothing_was_sent():
    assert sent_folders.mount_folders([node()], {"a": SimpleNamespace(folders=())}) == (node(),)
    assert sent_folders.digest_of({"a": SimpleNamespace(folders=(CODE,))}) == ""
