"""Causes: clocks. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "Clocks",
        (
            Row(
                "clock-skew",
                (
                    "torch's rendezvous compares its clock with the times that other nodes wrote. It treats a "
                    "node whose clock is 15 s behind as dead. One node may then train alone and end with code "
                    "0. With `muster deploy`, the clocks may differ by any amount (tried: an hour), and "
                    "preflight only warns that the times in the logs of different hosts do not match."
                ),
                by_hand="`date +%s.%N` on all hosts at once; `chronyc tracking`",
                fix="`sudo timedatectl set-ntp true`",
                source="pytorch/pytorch #76287",
                command="on {host}: sudo timedatectl set-ntp true (or: sudo chronyc makestep)",
                ends=Cause.CLOCK,
            ),
        ),
        group="clocks",
    ),
)
