"""Clocks and limits of a host."""

from pathlib import Path

from tests.lab.fault import TORCHRUN, fault

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
NEEDS = {"needs": FAKETIME}


def clock(host, seconds):
    """Its clock is `seconds` off (libfaketime, preloaded)."""
    assert Path(FAKETIME).exists()
    host.environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@fault("clock-skew", on="last", style=TORCHRUN, **NEEDS)
def clock_a_minute_behind_plain(lab, host):
    clock(host, -60)


@fault("clock-skew", on="last", **NEEDS)
def clock_a_minute_behind(lab, host):
    clock(host, -60)


@fault("clock-skew", on="first", **NEEDS)
def clock_of_the_first_an_hour_ahead(lab, host):
    clock(host, 3600)


@fault("clock-skew", on="last", **NEEDS)
def clock_eight_seconds_behind(lab, host):
    clock(host, -8)


@fault("clock-skew", on="last", style=TORCHRUN, **NEEDS)
def clock_ten_seconds_behind_plain(lab, host):
    clock(host, -10)


@fault("open-files", on="any")
def twenty_open_files(lab, host):
    host.setup.append("ulimit -n 20")


@fault("shm-small", on="any")
def little_shared_memory_nobody_needs(lab, host):
    host.setup.append("mount -t tmpfs -o size=64m tmpfs /dev/shm")


@fault("disk-full", on="any")
def temporary_folder_full(lab, host):
    host.setup.append("mount -t tmpfs -o size=64k tmpfs /tmp; head -c 65536 /dev/zero > /tmp/full || true")


@fault("conntrack-full", on="all", also=("data-ports-dropped", "one-way", "host-unreachable"))
def few_local_ports(lab, host):
    for each in lab.hosts:
        each.sysctl("net.ipv4.ip_local_port_range", "50000 50002")
