"""Reading hosts and job as the user wrote them; each mistake is refused with the path of its key."""

import textwrap
from pathlib import Path

import pytest

from deploy.core.errors import USAGE, UsageError
from deploy.job.cluster import find_cluster, from_file
from deploy.job.inventory import Host, hosts_of_flag, refuse_twins
from deploy.job.values import Mount, Secret

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def write(tmp_path):
    """Returns write(text): write a cluster.toml with this text, and return its path."""

    def put(text):
        path = tmp_path / "cluster.toml"
        path.write_text(textwrap.dedent(text))
        return path

    return put


@pytest.fixture
def refusal(write):
    """Returns refusal(text): the error for a cluster.toml with this text, with the folder removed from its message."""

    def read(text):
        path = write(text)
        with pytest.raises(UsageError) as caught:
            raise from_file(path).fault
        assert caught.value.code == USAGE
        caught.value.message = caught.value.message.replace(f"{path.parent}/", "")
        return caught.value

    return read


@pytest.mark.parametrize(
    ("flag", "host"),
    [
        ("a", Host("a", "a")),
        ("me@a:2222", Host("a", "a", 2222, "me")),
        ("10.0.0.4:22", Host("10.0.0.4", "10.0.0.4", 22)),
        ("me@[fe80::1%eth0]:2222", Host("fe80::1%eth0", "fe80::1%eth0", 2222, "me")),
        ("2001:db8::4", Host("2001:db8::4", "2001:db8::4")),
        ("domain\\me@a", Host("a", "a", None, "domain\\me")),
    ],
)
def test_the_hosts_option_is_parsed(flag, host):
    assert hosts_of_flag(flag) == (host,)
    assert hosts_of_flag(host.destination) == (host,)


def test_hosts_keep_the_order_of_the_option_and_spaces_are_ignored():
    assert [host.name for host in hosts_of_flag(" b, a ,c,")] == ["b", "a", "c"]


def test_hosts_on_one_address_are_named_by_their_ports():
    hosts = hosts_of_flag("127.0.0.1:2201,127.0.0.1:2202")
    assert [host.name for host in hosts] == ["127.0.0.1-2201", "127.0.0.1-2202"]


@pytest.mark.parametrize(
    "flag", ["", " , ", "a,,b c", "a:port", "a:0", "a:65536", "@a", "a@", "-oProxyCommand=x", "[a"]
)
def test_a_malformed_hosts_option_is_refused(flag):
    with pytest.raises(UsageError):
        hosts_of_flag(flag)


def test_a_host_named_twice_is_refused():
    with pytest.raises(UsageError, match="a is named more than once"):
        hosts_of_flag("a,b,root@a")


def test_a_file_with_every_kind_of_key_is_read(write, tmp_path):
    (tmp_path / "code").mkdir()
    cluster = from_file(
        write(
            """
            [[hosts]]
            name = "gpu-a"
            address = "10.0.0.4"
            port = 2222
            user = "ubuntu"
            gateway = "gpu-b, me@door:2022"
            interface = "eth1"
            gpus = [0, 2]
            image = "other:1"
            mounts = ["/data:/data:ro"]
            environment = { OMP_NUM_THREADS = 4, NAME = "a" }

            [[hosts]]
            name = "gpu-b"
            user = "root"

            [job]
            image = "torch:2"
            folder = "code"
            secrets = ["WANDB_API_KEY", { name = "HF_TOKEN", file = "token" }]
            mounts = ["/scratch:/scratch"]
            processes = 2
            shm_size = "16g"
            environment.SEED = "1"
            """
        )
    )
    first, second = cluster.hosts
    assert first == Host(
        "gpu-a",
        "10.0.0.4",
        2222,
        "ubuntu",
        "root@gpu-b,me@door:2022",
        "eth1",
        (0, 2),
        "other:1",
        {"OMP_NUM_THREADS": "4", "NAME": "a"},
        (Mount("/data", "/data", True),),
    )
    assert second == Host("gpu-b", "gpu-b", user="root")
    assert cluster.job.folder == tmp_path / "code"
    assert cluster.job.secrets == (Secret("WANDB_API_KEY", None), Secret("HF_TOKEN", tmp_path / "token"))
    assert (cluster.job.processes, cluster.job.shm_size, cluster.job.environment) == (2, "16g", {"SEED": "1"})


def test_the_hosts_option_picks_from_the_file_and_may_name_other_hosts(allowed, write):
    path = write('[[hosts]]\nname = "a"\naddress = "10.0.0.4"\nport = 2\n[[hosts]]\nname = "b"\n[job]\nprocesses = 3')
    cluster = find_cluster("c,me@a,b:7", str(path))
    assert cluster.hosts == (Host("c", "c"), Host("a", "10.0.0.4", 2, "me"), Host("b", "b", 7))
    assert cluster.job.processes == 3
    assert [host.name for host in find_cluster("", str(path)).hosts] == ["a", "b"]


def test_the_hosts_option_picks_from_the_file_in_this_folder_too(allowed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert find_cluster("c", "").hosts == (Host("c", "c"),)
    (tmp_path / "cluster.toml").write_text('[[hosts]]\nname = "a"\naddress = "10.0.0.4"\n[job]\nprocesses = 3\n')
    cluster = find_cluster("a", "")
    assert cluster.hosts == (Host("a", "10.0.0.4"),)
    assert cluster.job.processes == 3


def test_a_host_in_the_file_can_be_named_by_its_destination(allowed, write):
    """Hints and a run's record name hosts by their destinations: the jump hosts and GPUs of the file still apply."""
    rows = (
        'name = "a"\naddress = "10.0.0.4"\nuser = "me"\ngateway = "jump"',
        'name = "b"\naddress = "10.0.0.4"\nport = 2',
    )
    path = write("".join(f"[[hosts]]\n{row}\ngpus = 1\n" for row in rows))
    hosts = find_cluster("", str(path)).hosts
    assert find_cluster(",".join(host.destination for host in hosts), str(path)).hosts == hosts


def test_a_list_of_texts_is_read_like_the_hosts_option(write, allowed):
    path = write('hosts = ["a", "me@b:2222", "10.0.0.4:1", "10.0.0.4:2"]\n[job]\nprocesses = 3')
    cluster = find_cluster("", str(path))
    assert cluster.hosts == hosts_of_flag("a,me@b:2222,10.0.0.4:1,10.0.0.4:2")
    assert cluster.job.processes == 3
    assert find_cluster("b", str(path)).hosts == (Host("b", "b", 2222, "me"),)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "cluster.toml: empty", "[[hosts]]"),
        ("# only a remark\n", "cluster.toml: empty", "[[hosts]]"),
        ("[job]\nprocesses = 1", "cluster.toml: no hosts", "[[hosts]]"),
        ("[[hosts]]\nname = a", "cluster.toml: not valid TOML: Invalid value (at line 2", "quotes"),
        (
            "[[hosts]]\nname = 'a'\n[job\n",
            "cluster.toml: not valid TOML: Expected ']' at the end of a table declaration (at line 3",
            "",
        ),
        ("[[hosts]]\nname = 'a'\n[job]\nmounts = [\n'/a:/a'\n", "cluster.toml: not valid TOML: Unclosed array", ""),
        ("[[host]]\nname = 'a'", "cluster.toml: host: unknown key", "did you mean `hosts`?"),
        ("hosts = ['a', '-oProxyCommand=x']", "cluster.toml: hosts[1]: '-oProxyCommand=x' is not a host", ""),
        ("hosts = ['a,b']", "cluster.toml: hosts[0]: 'a,b' is not a host", ""),
        ("hosts = ['a', {name = 'b'}]", "cluster.toml: hosts[1]: {'name': 'b'} is not a host", ""),
        ("hosts = ['a', 'me@a']", "cluster.toml: hosts: a is listed twice", "name each host once"),
        ("hosts = []", "cluster.toml: no hosts", "[[hosts]]"),
        ("hosts = 'a'", "cluster.toml: hosts: 'a' is not an array of tables", ""),
        ("[hosts]\nname = 'a'", "cluster.toml: hosts: {'name': 'a'} is not an array of tables", ""),
        ("[[hosts]]\nport = 22", "cluster.toml: hosts[0]: no name", "its address"),
        (
            "[[hosts]]\nname = 'a'\n\n[[hosts]]\nname = 'b'\n# x\nadress = '1'",
            "cluster.toml: hosts[1].adress (b): unknown key",
            "did you mean `address`?",
        ),
        ("[[hosts]]\nname = 'a'\nzzz = 1", "cluster.toml: hosts[0].zzz (a): unknown key", "known here: address, env"),
        ("[[hosts]]\nname = 'a'\nport = '22'", "cluster.toml: hosts[0].port (a): '22' is not a port number", ""),
        ("[[hosts]]\nname = 'a'\nport = true", "cluster.toml: hosts[0].port (a): true is not a port number", ""),
        ("[[hosts]]\nname = 'a'\nport = 70000", "cluster.toml: hosts[0].port (a): 70000 is not", ""),
        ("[[hosts]]\nname = 'a b'", "cluster.toml: hosts[0].name: 'a b' is not a name", ""),
        ("[[hosts]]\nname = 'a'\naddress = '-oX'", "cluster.toml: hosts[0].address (a): '-oX' is not", ""),
        ("[[hosts]]\nname = 'a'\ngpus = 'all'", "cluster.toml: hosts[0].gpus (a): 'all' is not \"auto\"", ""),
        ("[[hosts]]\nname = 'a'\ngpus = [0, 0]", "cluster.toml: hosts[0].gpus (a): [0, 0] is not", ""),
        ("[[hosts]]\nname = 'a'\n[[hosts]]\n\nname = 'a'", "cluster.toml: hosts[1].name: a is already the name", ""),
        (
            "hosts = [\n  { name = 'a' },\n  { name = 'b',\n    port = 'x' },\n]".replace(",\n    port", ", port"),
            "cluster.toml: hosts[1].port (b): 'x' is not a port number",
            "",
        ),
        (
            "[[hosts]]\nname = 'a'\n[hosts.environment]\nA = 1\nB = true",
            "cluster.toml: hosts[0].environment.B (a): true is not a string of one line",
            "",
        ),
        (
            "[[hosts]]\nname = 'a'\nenvironment.'A B' = 1",
            "cluster.toml: hosts[0].environment.A B (a): not the name",
            "",
        ),
        (
            "[[hosts]]\nname = 'a'\n[job]\nmounts = [\n  '/a:/a',\n  'b:/b',\n]\nprocesses = 'auto'",
            "cluster.toml: job.mounts[1]: 'b:/b' is not \"/source:/target\"",
            "",
        ),
        (
            "[[hosts]]\nname = 'a'\n[job]\nenvironment.TEXT = '''\nx = 1\n[jobs]'''\nimag = 'a'",
            "cluster.toml: job.environment.TEXT: ",
            "",
        ),
        ("[[hosts]]\nname = 'a'\n[job]\nprocesses = 0", "cluster.toml: job.processes: 0 is not", ""),
        (
            "[[hosts]]\nname = 'a'\n[job]\nimage = 'a'\ndockerfile = 'b'",
            "cluster.toml: job.dockerfile: cannot be used with image: both say which image to use",
            "",
        ),
        (
            "[[hosts]]\nname = 'a'\n[job]\nscript = 'train.py'\nargs = '--lr 1'",
            "cluster.toml: job.args: cannot be used with script: it holds options for Muster's own trainer",
            "put the script's own options after the script",
        ),
        (
            "[[hosts]]\nname = 'a'\n[job]\nscript = 'train.py'\n[[role]]\nname = 'b'\nnodes = 1\ncommand = 'x'",
            "cluster.toml: job: the file has roles too",
            "a script is a role of its own",
        ),
        ("[[hosts]]\nname = 'a'\n[job]\nfolder = 'nowhere'", "cluster.toml: job.folder: there is no folder", ""),
        ("[[hosts]]\nname = 'a'\n[job]\ndockerfile = 'none'", "cluster.toml: job.dockerfile: there is no file", ""),
        ("[[hosts]]\nname = 'a'\n[jobs]\nfolder = 'x'", "cluster.toml: jobs: unknown key", "did you mean `job`?"),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_path(refusal, text, message, hint):
    fault = refusal(text)
    assert fault.message.startswith(message)
    assert hint in fault.hint


def test_a_file_with_only_hosts_and_roles_is_valid(write):
    path = write("[[hosts]]\nname = 'a'\n[[role]]\nname = 'b'\nnodes = 1\ncommand = 'x'")
    assert from_file(path).job.roles


def test_one_wrong_host_among_many_is_refused_by_name(refusal):
    text = "".join(f"[[hosts]]\nname = 'h{number}'\nport = {22 if number != 700 else 0}\n\n" for number in range(1000))
    assert refusal(text).message.startswith("cluster.toml: hosts[700].port (h700): 0 is not a port number")


def test_a_secret_written_into_the_file_is_refused_without_being_shown(refusal):
    fault = refusal("[[hosts]]\nname = 'a'\n[job]\nsecrets = ['HF_TOKEN=hf_123']")
    assert fault.message.startswith("cluster.toml: job.secrets[0]: this is not")
    assert "hf_123" not in fault.message + fault.hint


@pytest.mark.parametrize(
    ("data", "says"), [(None, "cannot be read: No such file"), (b"name = '\xff'", "not UTF-8 text")]
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, data, says):
    path = tmp_path / "cluster.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=says):
        from_file(path)


def test_one_machine_under_two_names_is_refused_and_both_are_named():
    hosts = hosts_of_flag("gpu-a,gpu-b")
    with pytest.raises(UsageError, match=r"gpu-a and gpu-b are the same host: NODE7:22"):
        refuse_twins(hosts, {"gpu-a": ("node7", 22, ""), "gpu-b": ("NODE7", 22, "")})


def test_the_same_address_behind_another_jump_host_is_another_machine():
    hosts = hosts_of_flag("gpu-a,gpu-b")
    refuse_twins(hosts, {"gpu-a": ("10.0.0.4", 22, "door-1"), "gpu-b": ("10.0.0.4", 22, "door-2")})


def test_the_example_is_a_valid_file():
    cluster = from_file(EXAMPLES / "cluster.toml")
    assert len(cluster.hosts) >= 2
