"""The primitives differ, lie, limit, fill, remove: a host's settings, names, clocks, limits, mounts and ports."""

from __future__ import annotations

from collections.abc import Sequence

from lab.drawn.part import Act, Cast, Part, at, breaks, harmless, host_of, part
from lab.fault import MUSTER, TORCHRUN
from lab.faults.limits import clock
from lab.faults.ports import listens
from lab.network import HOSTS_FILES, PORT, Lab

# What a rehearsal, which runs torch on the hosts, sees of such a fault. These slugs name no cause, but the host.
REHEARSED = "proof-failed rehearsal-failed probe-died"


def _has(hosts: str | Sequence[str], values: dict[str, str]) -> Act:
    return at(hosts, lambda host: host.environment.update(values))


def _runs_under(hosts: str | Sequence[str], line: str) -> Act:
    """Run a shell line before each command on these hosts."""
    return at(hosts, lambda host: host.setup.append(line))


@breaks("differ", "setting: the environment")
def a_setting_differs(cast: Cast) -> Part:
    host = cast.any()
    values, causes = cast.chance.choice(
        (
            ({"GLOO_SOCKET_IFNAME": "ens9"}, "interface-missing"),
            ({"GLOO_SOCKET_IFNAME": "lo"}, "interface-loopback"),
            ({"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, "settings-differ"),
            ({"GLOO_DEVICE_TRANSPORT": "RDMA"}, "settings-differ"),
            ({"GLOO_DEVICE_TRANSPORT": "UV"}, "settings-differ"),
            ({"PET_NNODES": str(cast.count + 1)}, "settings-differ"),
            ({"PET_RDZV_ID": "other"}, "settings-differ"),
            ({"PET_RDZV_BACKEND": "etcd-v2"}, "settings-differ"),
            ({"TORCH_DISTRIBUTED_DEBUG": "MUCH"}, "settings-differ"),
            ({"TORCH_CPP_LOG_LEVEL": "LOUD"}, "settings-differ"),
            ({"OMP_NUM_THREADS": "many"}, "settings-differ"),
            ({"CUDA_VISIBLE_DEVICES": "7"}, "settings-differ"),
        )
    )
    return part(
        f"{host} has {values}",
        _has(host, values),
        causes,
        cast.alone(host),
        "settings-differ " + REHEARSED,
    )


@breaks("lie", "setting: an interface by name")
def an_interface_that_leads_elsewhere(cast: Cast) -> Part | None:
    host, kind = cast.any(), cast.chance.choice(("bridge", "other network", "without an address"))
    if cast.families != "4":
        return None

    def do(lab: Lab) -> None:
        there = host_of(lab, host)
        if kind == "other network":
            there.ip("tuntap add dev ens7 mode tap", "link set ens7 up", "address add 172.31.44.2/24 dev ens7")
        else:
            there.ip(
                "link add ens7 type bridge",
                "link set ens7 up",
                *(["address add 172.29.0.1/24 dev ens7"] if kind == "bridge" else []),
            )
        there.environment["GLOO_SOCKET_IFNAME"] = "ens7"

    causes = {
        "bridge": "other-network container-bridge",
        "other network": "other-network",
        "without an address": "interface-no-address link-local",
    }[kind]
    more = "no-route all-ports-dropped interface-down"
    return part(f"{host} is told to use ens7, a card of kind: {kind}", do, causes, cast.alone(host), more)


@breaks("lie", "clock")
def a_clock_is_wrong(cast: Cast) -> Part:
    host, seconds = cast.any(), cast.chance.choice((-3600, -90, -30, -20, 25, 45, 3600))
    subjects = cast.silent(host)
    return part(
        f"{host}'s clock is {seconds} s off",
        lambda lab: clock(host_of(lab, host), seconds),
        "clock-skew",
        subjects,
    )


@breaks("limit", "host: what a process may have")
def a_limit_is_low(cast: Cast) -> Part:
    host = cast.any()
    option, causes = cast.chance.choice(
        (
            ("-n 18", "open-files"),
            ("-n 14", "open-files"),
            ("-v 900000", "process-limits memory-low"),
            ("-v 400000", "process-limits memory-low"),
            ("-f 0", "process-limits"),
            ("-s 16", "process-limits"),
            ("-t 1", "process-limits"),
            ("-d 200000", "process-limits memory-low"),
        )
    )
    return part(
        f"{host} has ulimit {option}",
        _runs_under(host, f"ulimit {option}"),
        causes,
        cast.alone(host),
        REHEARSED,
    )


@breaks("fill", "limit: local ports")
def few_local_ports(cast: Cast) -> Part:
    host, narrow = cast.any(), cast.chance.choice(("50000 50001", "50000 50002"))
    return part(
        f"{host} has the local ports {narrow}",
        at(host, lambda each: each.sysctl("net.ipv4.ip_local_port_range", narrow)),
        "few-ports",
        cast.alone(host),
    )


@breaks("fill", "port: the rendezvous")
def the_port_is_taken(cast: Cast) -> Part:
    return part(
        "somebody listens on the rendezvous port",
        lambda lab: listens(lab.hosts[0], PORT),
        "port-busy",
        cast.alone(cast.hosts[0]),
        "wrong-machine",
    )


@breaks("lie", "port: another answers", "4")
def a_stranger_answers(cast: Cast) -> Part:
    what = cast.chance.choice(("rendezvous", "data"))
    host = cast.hosts[0] if what == "rendezvous" else cast.any()
    ports = str(PORT) if what == "rendezvous" else "30000:65535"

    def do(lab: Lab) -> None:
        there = host_of(lab, host)
        listens(there, 7007)
        there.firewall(f"PREROUTING -t nat -i eth0 -p tcp --dport {ports} -j REDIRECT --to-ports 7007", families="4")

    return part(
        f"{host} sends calls of the {what} ports to another program",
        do,
        "wrong-machine",
        cast.silent(host),
    )


@breaks("remove", "mount: where processes write")
def nowhere_to_write(cast: Cast) -> Part:
    host, how = cast.any(), cast.chance.choice(("ro", "full"))
    option = {"ro": "-o ro,size=1m", "full": "-o size=4k"}[how]
    fill = "" if how == "ro" else "; head -c 8192 /dev/zero >$f/full 2>/dev/null || true"
    lines = f"for f in /tmp /var/tmp /dev/shm; do mount -t tmpfs {option} tmpfs $f{fill}; done"
    # The run's working folder is below /tmp: it is affected, too.
    return part(
        f"{host}: /tmp, /var/tmp and /dev/shm are {how}; the folder of the run too",
        _runs_under(host, f"{lines}; cd /tmp"),
        "disk-full shm-small home-readonly mount-closed folder-readonly",
        cast.alone(host),
        REHEARSED,
    )


@breaks("remove", "mount: shared memory")
def no_shared_memory(cast: Cast) -> Part:
    host, how = cast.any(), cast.chance.choice(("size=4k", "ro,size=1g", "size=1m,nr_inodes=1"))
    return part(
        f"{host}: /dev/shm is {how}",
        _runs_under(host, f"mount -t tmpfs -o {how} tmpfs /dev/shm"),
        "shm-small disk-full inodes-full folder-readonly",
        cast.alone(host),
        REHEARSED,
    )


def _book(lab: Lab, host: str, lines: list[str], but: tuple[str, ...] = ()) -> None:
    """Write a host's /etc/hosts: these lines, then all hosts except those in `but`."""
    rest = [f"{at} {each.name}" for each in lab.hosts if each.name not in but for at in each.addresses.values()]
    host_of(lab, host).knows(*lines, *rest)


@breaks("lie", "name: a peer's, or its own")
def a_name_lies(cast: Cast) -> Part | None:
    if cast.style != TORCHRUN:
        return None
    first = cast.hosts[0]
    kind = cast.chance.choice(
        ("own is loopback", "own is unknown", "own is foreign", "first is foreign", "first is unknown")
    )
    host = cast.any(but=[first]) if kind.startswith("first") else cast.any()
    name = first if kind.startswith("first") else host
    lines = {"loopback": [f"127.0.1.1 {name}"], "unknown": [], "foreign": [f"10.254.1.9 {name}"]}[kind.split()[-1]]
    own = {
        "own is loopback": "name-loopback",
        "own is unknown": "name-unresolvable",
        "own is foreign": "name-foreign",
    }
    peers = {
        "first is foreign": "peer-name-wrong endpoint-foreign",
        "first is unknown": "peer-name-unresolvable endpoint-unresolvable",
    }
    return part(
        f"on {host}, {name}: {kind}",
        lambda lab: _book(lab, host, lines, (name,)),
        {**own, **peers}[kind],
        cast.alone(host),
        "endpoint-nobody",
    )


@breaks("swap", "name: two hosts")
def two_names_are_swapped(cast: Cast) -> Part | None:
    if cast.style != TORCHRUN or cast.count < 3:
        return None
    first, other = cast.hosts[0], cast.any(but=cast.hosts[:1])
    host = cast.any(but=[first, other])

    def do(lab: Lab) -> None:
        lines = [f"{cast.address(other)} {first}", f"{cast.address(first)} {other}"]
        _book(lab, host, lines, (first, other))

    causes = "peer-name-wrong endpoint-foreign"
    return part(
        f"on {host} the names of {first} and {other} are swapped",
        do,
        causes,
        cast.alone(host),
        "wrong-machine",
    )


@breaks("differ", "name: one for all")
def hosts_of_one_name(cast: Cast) -> Part | None:
    if cast.style != TORCHRUN:
        return None

    def do(lab: Lab) -> None:
        for host in lab.hosts:
            host.setup.append("hostname clone")
            _book(lab, host.name, [f"{host.address} clone"])

    return part("all hosts are named clone", do, "same-hostname", cast.everyone(), "endpoint-twice")


@harmless("delay", "name: a resolver that never answers")
def a_slow_resolver(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))
    known = cast.style == TORCHRUN

    def do(lab: Lab) -> None:
        for name in hosts:
            host = host_of(lab, name)
            text = f"nameserver {cast.net4}.250\noptions timeout:{2 if known else 5} attempts:1\n"
            if "4" in cast.families:
                (HOSTS_FILES / host.space / "resolv.conf").write_text(text)
            if not known:
                host.knows()

    return part(f"{', '.join(hosts)} ask a name server that does not answer", do)


@harmless("differ", "setting: what this run does not use")
def an_idle_setting(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))
    values = cast.chance.choice(
        (
            {"NCCL_IB_DISABLE": "1"},
            {"NCCL_ALGO": "Ring"},
            {"NCCL_PROTO": "Simple"},
            {"NCCL_DEBUG": "INFO"},
            {"NCCL_SOCKET_IFNAME": "eth9"},
            {"NCCL_NET": "IB"},
            {"MASTER_ADDR": "10.1.2.3"},
            {"MASTER_PORT": "1234"},
            {"WORLD_SIZE": "8"},
            {"RANK": "3"},
            {"OMP_NUM_THREADS": "2"},
            {"TORCH_SHOW_CPP_STACKTRACES": "1"},
            {"UCX_TLS": "tcp"},
            {"http_proxy": "http://10.9.9.9:3128"},
            {"CUDA_VISIBLE_DEVICES": ""},
            {"TORCH_NCCL_BLOCKING_WAIT": "1"},
            {"GLOO_SOCKET_IFNAME": "eth0"},
            {"PET_MAX_RESTARTS": "0"},
            {"FI_PROVIDER": "efa"},
            {"TORCH_CPP_LOG_LEVEL": "INFO"},
            {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        )
    )
    words = f"{', '.join(hosts)} have {values}"
    if "TORCH_DISTRIBUTED_DEBUG" in values and len(hosts) < cast.count:
        # torch then wraps the process groups of only some ranks, and no run starts (draw 24726.135).
        others = frozenset(cast.hosts) - {*hosts}
        right = frozenset({frozenset(hosts), others, frozenset(cast.hosts)})
        return part(words, _has(hosts, values), "settings-differ", right)
    return part(words, _has(hosts, values))


@harmless("lie", "clock, a little")
def a_clock_is_a_little_off(cast: Cast) -> Part:
    host, seconds = cast.any(), cast.chance.choice((-2.5, -1.0, 1.5, 3.0))
    return part(f"{host}'s clock is {seconds} s off", lambda lab: clock(host_of(lab, host), seconds))


@harmless("limit", "host: tight, but enough")
def tight_limits(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))
    line = cast.chance.choice(
        (
            "ulimit -n 256",
            "ulimit -n 1024",
            "mount -t tmpfs -o size=64m tmpfs /dev/shm",
            "ulimit -c 0",
            "ulimit -l 64",
            "mount -t tmpfs -o size=8k tmpfs /mnt",
            "mount -t tmpfs -o size=64k tmpfs /home",
            "ulimit -t 600",
            "mount -t tmpfs -o ro,size=1m tmpfs /mnt",
            "unset HOME",
            "ulimit -s 4096",
            "umask 077",
            "ulimit -v 64000000",
        )
    )
    return part(f"{', '.join(hosts)}: {line}", _runs_under(hosts, line))


@harmless("lie", "name: where addresses are given")
def names_that_nobody_uses(cast: Cast) -> Part | None:
    if cast.style != MUSTER:
        return None
    host, peer = cast.pair()
    kind = cast.chance.choice(("own is loopback", "nothing is known", "peers are foreign", "all are named clone"))

    def do(lab: Lab) -> None:
        there = host_of(lab, host)
        if kind == "own is loopback":
            _book(lab, host, [f"127.0.1.1 {host}"], (host,))
        elif kind == "nothing is known":
            there.knows()
        elif kind == "peers are foreign":
            _book(lab, host, [f"10.3.3.3 {peer}"], (peer,))
        else:
            for each in lab.hosts:
                each.setup.append("hostname clone")

    return part(f"names of {host}: {kind}", do)


@harmless("fill", "port: others")
def ports_of_others(cast: Cast) -> Part:
    host, port = cast.any(), cast.chance.choice((22, 8888, 29400, 29501, 50051))
    return part(f"somebody listens on {host}'s port {port}", lambda lab: listens(host_of(lab, host), port))
