"""Faults in the clock, the limits and the settings of a host."""

from pathlib import Path

from lab.fault import TORCHRUN, fault

CLOCK = Path(__file__).resolve().parents[1] / "clock"


def clock(host, seconds):
    """Set the host's clock `seconds` off, for Python programs (lab/clock/)."""
    host.environment |= {"PYTHONPATH": str(CLOCK), "LAB_CLOCK_S": str(seconds)}


@fault("clock-skew", on="last", style=TORCHRUN)
def clock_a_minute_behind_plain(lab, host):
    clock(host, -60)


@fault("clock-skew", on="last")
def clock_a_minute_behind(lab, host):
    clock(host, -60)


@fault("clock-skew", on="first")
def clock_of_the_first_an_hour_ahead(lab, host):
    clock(host, 3600)


@fault("clock-skew", on="last")
def clock_eight_seconds_behind(lab, host):
    clock(host, -8)


@fault("clock-skew", on="last", style=TORCHRUN)
def clock_ten_seconds_behind_plain(lab, host):
    clock(host, -10)


@fault("clock-skew", on="last", style=TORCHRUN, counts=(2,))
def clock_fourteen_seconds_behind_plain(lab, host):
    clock(host, -14)


@fault("clock-skew", on="last", style=TORCHRUN, counts=(2,))
def clock_sixteen_seconds_behind_plain(lab, host):
    clock(host, -16)


@fault("open-files", on="any")
def twenty_open_files(lab, host):
    host.setup.append("ulimit -n 20")


@fault("shm-small", on="any")
def little_shared_memory_nobody_needs(lab, host):
    host.setup.append("mount -t tmpfs -o size=64m tmpfs /dev/shm")


@fault("disk-full", on="any")
def temporary_folder_full(lab, host):
    host.setup.append("mount -t tmpfs -o size=64k tmpfs /tmp; head -c 65536 /dev/zero > /tmp/full || true")


@fault("process-limits", on="any", counts=(2,))
def seconds_of_cpu_are_limited(lab, host):
    host.setup.append("ulimit -t 3")


@fault("process-limits", on="any", counts=(3,), also=("memory-low",))
def address_space_is_limited(lab, host):
    host.setup.append("ulimit -v 1500000")


@fault("process-limits", on="any", counts=(2,))
def file_size_is_limited(lab, host):
    host.setup.append("ulimit -f 0")


@fault("settings-differ", on="all", style=TORCHRUN, counts=(3,))
def proxy_for_everything(lab, host):
    for each in lab.hosts:
        each.environment |= {"http_proxy": "http://10.77.0.99:3128", "all_proxy": "socks5://10.77.0.99:1080"}


@fault("settings-differ", on="any", counts=(2,))
def gloo_wants_encryption_on_one(lab, host):
    host.environment["GLOO_DEVICE_TRANSPORT"] = "TCP_TLS"
