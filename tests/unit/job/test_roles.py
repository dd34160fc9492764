"""Roles in options and in files, which others may have written: everything is read, or refused by name."""

import pytest

from deploy.core.errors import UsageError
from deploy.job import toml
from deploy.job.roles.all_roles import cast, with_script
from deploy.job.roles.ray import roles_of
from deploy.job.roles.role import ANY_PORT, Role, how_ready, of_table, read


def table(tmp_path, text):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return toml.read(path).tables("role")[0]


def test_a_role_has_a_name_nodes_a_command_and_settings():
    assert read("reward=1:python reward.py") == Role("reward", "python reward.py")
    assert read("a=gpu-a+gpu-b,ends,restart=3,after=b+c:bash run.sh") == Role(
        "a", "bash run.sh", hosts=("gpu-a", "gpu-b"), ends=True, restart=3, after=("b", "c")
    )


@pytest.mark.parametrize(
    "role",
    [
        Role("a", "python a.py --x 'y: z, w'", port=8000, ready="http://localhost:81/health?a=b,c", within="90s"),
        Role("a", "bash a.sh", 3, ready=r"line ready: 1, \ 2", separate=True, processes="2"),
        Role("main", "train.py", 0, ends=True, after=("a", "b")),
    ],
)
def test_a_recorded_role_is_read_unchanged(role):
    assert read(role.text) == role


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("port", ("port", 0, "")),
        ("port 80", ("port", 80, "")),
        ("http://localhost", ("url", 0, "/")),
        ("http://127.0.0.1:81/health?a=b,c", ("url", 81, "/health?a=b,c")),
        ("file out/ready now", ("file", 0, "out/ready now")),
        ("line is up: 1", ("line", 0, "is up: 1")),
        ("ports", None),
        ("port 0", None),
        ("port  80", None),
        ("http://localhost:0/", None),
        ("http://localhosts/", None),
        ("line  ", None),
        ("file out/\n", None),
        (7, None),
    ],
)
def test_a_readiness_check_is_parsed(text, how):
    assert how_ready(text) == how


def test_a_role_in_a_table_is_read_like_one_in_an_option(tmp_path):
    text = '[[role]]\nname = "a"\ncommand = "python a.py"\nnodes = 2\nport = 80\nready = "port"\nwithin = "2m"\n'
    assert of_table(table(tmp_path, text)) == Role("a", "python a.py", 2, port=80, ready="port", within="2m")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a=0:x.py", "0"),
        ("a=-1:x.py", "hosts"),
        ("a=99999:x.py", "nodes"),
        ("a=1", "not NAME=N:COMMAND"),
        ("a=1:  ", "one line"),
        ("a=1:x.py\nrm -rf /", "one line"),
        ("a=1:x\x1b[2J.py", "one line"),
        ("A=1:x.py", "not a name for a role"),
        ("a b=1:x.py", "not a name for a role"),
        ("a$(id)=1:x.py", "not a name for a role"),
        ("ä=1:x.py", "not a name for a role"),
        ("../a=1:x.py", "not a name for a role"),
        ("a_b=1:x.py", "not a name for a role"),
        ("role=1:x.py", "Muster's own variables"),
        ("run=1:x.py", "Muster's own variables"),
        ("a=1,volume=/:x.py", "unknown key"),
        ("a=1,name=b:x.py", "name is given twice"),
        ("a=1,command=b:x.py", "command is given twice"),
        ("a=1,port=70000:x.py", "port"),
        ("a=1,ready=port:x.py", "the role has no port either"),
        ("a=1,port=80,ready=http\\://10.0.0.1/x:x.py", "of the role's own node"),
        ("a=1,port=80,ready=http\\://localhost@evil/x:x.py", "of the role's own node"),
        ("a=1,port=80,ready=http\\://localhost.evil.org/x:x.py", "of the role's own node"),
        ("a=1,port=80,ready=https\\://localhost/x:x.py", "of the role's own node"),
        ("a=1,port=80,ready=http\\://localhost/a b:x.py", "of the role's own node"),
        ("a=1,port=80,ready=http\\://localhost\\:99999/:x.py", "of the role's own node"),
        ("a=1,ready=file ../../etc/passwd:x.py", "of the role's own node"),
        ("a=1,ready=file /etc/passwd:x.py", "of the role's own node"),
        ("a=1,ready=exec rm:x.py", "of the role's own node"),
        ("a=1,within=forever:x.py", "within"),
        ("a=1,restart=-1:x.py", "restart"),
        ("a=x/../y:x.py", "hosts"),
    ],
)
def test_an_invalid_role_is_refused_by_name(text, what):
    with pytest.raises(UsageError) as refused:
        cast([text], ())
    assert what in refused.value.message
    assert refused.value.message.isprintable() or "\n" in text


@pytest.mark.parametrize(
    "text",
    [
        "name = 3\ncommand = 'x'",
        "name = 'a'\ncommand = ['x', 'y']",
        "name = 'a'\ncommand = 'x'\nnodes = true",
        "name = 'a'\ncommand = 'x'\nends = 'yes'",
        "name = 'a'\ncommand = 'x'\nhosts = [1]",
        "name = 'a'\ncommand = 'x'\nprivileged = true",
        "command = 'x'",
        "name = 'a'",
    ],
)
def test_a_malformed_table_is_refused_with_its_place(tmp_path, text):
    with pytest.raises(UsageError, match=r"cluster\.toml: role\[0\]"):
        of_table(table(tmp_path, f"[[role]]\n{text}\n"))


def test_a_script_next_to_roles_gets_the_remaining_hosts_and_ends_the_run():
    texts, script = with_script(["reward=c:python reward.py"], "train.py --lr 1")
    assert script == "train.py --lr 1"
    reward, main = cast(texts, ["a", "b", "c"])
    assert (reward.name, reward.hosts) == ("reward", ("c",))
    assert (main.name, main.hosts, main.ends, main.after) == ("main", ("a", "b"), True, ("reward",))


def test_hosts_go_to_roles_in_order_and_named_hosts_to_their_role():
    made = cast(["x=1:x.py", "y=b:y.py", "z=rest:z.py"], ["a", "b", "c", "d"])
    assert {role.name: role.hosts for role in made} == {"x": ("a",), "y": ("b",), "z": ("c", "d")}


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["a=1:x.py", "a=1:y.py"], "two roles, or a role and a node"),
        (["a=2:x.py", "a-0=1:y.py"], "role a-0: two roles, or a role and a node"),
        (["a=3:x.py"], "need 3 hosts"),
        (["a=1:x.py"], "need 1 host, and the run has 2"),
        (["a=h1:x.py", "b=h1:y.py"], "two roles name this host"),
        (["a=h1+h1:x.py"], "two roles name this host"),
        (["a=h9:x.py"], "which the run does not have"),
        (["a=1,after=c:x.py", "b=1:y.py"], "there is no role c"),
        (["a=1,after=b:x.py", "b=1,after=a:y.py"], "in a circle: a after b after a"),
        (["a=1,after=a:x.py", "b=1:y.py"], "in a circle: a after a"),
        (["a=1,ends:x.py", "b=1,ends:y.py"], "roles a, b: only one role may end the run"),
        (["a=rest:x.py", "b=rest:y.py"], "only one"),
        ([f"a{number}=1:x.py" for number in range(65)], "at most 64"),
    ],
)
def test_roles_that_do_not_fit_together_are_refused(texts, what):
    with pytest.raises(UsageError, match=what):
        cast(texts, ["h1", "h2"])


def test_a_role_that_only_waits_for_a_circle_is_not_named_in_it():
    with pytest.raises(UsageError, match="circle: a after b after a"):
        cast(["t=1,after=a:t.py", "a=1,after=b:x.py", "b=1,after=a:y.py"], ())


def test_a_script_next_to_a_role_that_ends_the_run_is_refused_with_what_to_leave_out():
    texts, _ = with_script(["a=1,ends:x.py"], "train.py")
    with pytest.raises(UsageError) as refused:
        cast(texts, ())
    assert "leave out `ends` of a" in refused.value.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("image = 'x'", "all roles share the run's image"),
        ("env = {A = '1'}", "env NAME=VALUE python serve.py"),
        ("wait_for = 'b'", "after ="),
        ("restarts = 3", "did you mean `restart`?"),
    ],
)
def test_for_a_wrong_key_of_a_role_the_hint_names_the_right_way(tmp_path, line, hint):
    with pytest.raises(UsageError) as refused:
        of_table(table(tmp_path, f"[[role]]\nname = 'a'\ncommand = 'x'\n{line}\n"))
    assert hint in refused.value.hint


def test_roles_are_sorted_by_their_start_order():
    made = cast(["t=1,after=r:t.py", "w=1:w.py", "r=1,after=w:r.py"], ())
    assert [role.name for role in made] == ["w", "r", "t"]


def test_a_ray_cluster_is_a_head_that_ends_the_run_and_workers_that_restart():
    head, worker = cast(roles_of("train_rl.py --rounds 3", 3), ("a", "b", "c"))
    assert (head.command, head.hosts, head.ends) == ("python -m muster.ray head train_rl.py --rounds 3", ("a",), True)
    assert (worker.hosts, worker.separate, worker.after) == (("b", "c"), True, ("head",))
    assert worker.restart > 0
    assert (head.processes, worker.processes) == ("1", "1")


def test_a_ray_cluster_on_one_host_has_no_workers_and_may_have_no_driver():
    assert [role.command for role in cast(roles_of("", 1), ("a",))] == ["python -m muster.ray head"]


def test_a_port_may_be_any_free_one_and_is_recorded_as_such():
    role = read("a=1,port=free,ready=port:x.py")
    assert read(role.text) == role
    assert role.port == ANY_PORT
    with pytest.raises(UsageError, match="free"):
        read("a=1,port=any:x.py")
