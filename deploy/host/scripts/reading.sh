#!/bin/sh
# For work in the folder of a run. A run's container writes it as the user we log in as, while we read it: any name in it
# may be a link into our home, a FIFO, a terabyte, a name of two lines, and may become one between two steps of ours. So
# nothing here goes by a path through it. docs/decisions/0017 says why it is done this way.
runs=$(cd -P -- "$HOME/.muster/runs" 2>/dev/null && env pwd -P)
# plain NAME: whether this can be the name of a run.
plain() { case $1 in '' | [!A-Za-z0-9_]* | *[!A-Za-z0-9._-]*) return 1 ;; esac; }
# enter RUN/nodes: goes there if that is a folder below the runs. cd follows links; where we then are the kernel says (a
# shell's own pwd may ask the path again), and from there on nothing moves us.
enter() { [ -n "$runs" ] && cd -P -- "$runs/$1" 2>/dev/null && [ "$(env pwd -P)" = "$runs/$1" ]; }
# piece NAME OFFSET BYTES: of a file right here. Opened without following a link, and without waiting for who writes into
# a FIFO. Where dd cannot do that (busybox), what was opened must be what we named.
piece() { dd if="./$1" iflag=nofollow,nonblock,skip_bytes,count_bytes skip="$2" count="$3" bs=65536 2>/dev/null; }
dd if=/dev/null iflag=nofollow,nonblock,skip_bytes,count_bytes count=0 2>/dev/null || piece() {
    # shellcheck disable=SC2016  # the inner shell expands it
    [ ! -f "./$1" ] || timeout 20 sh -c '
        exec <"./$1" && [ "$(readlink /proc/$$/fd/0)" = "$(env pwd -P)/$1" ] || exit
        tail -c "+$(($2 + 1))" | head -c "$3"' piece "$1" "$2" "$3"
}
# read_at RUN nodes/NAME OFFSET BYTES: the same of a file of a run.
read_at() (
    case $2 in */*) enter "$1/${2%/*}" ;; *) enter "$1" ;; esac && piece "${2##*/}" "$3" "$4"
)
# files PATH...: the plain files there and right below, as `nodes/NAME SIZE WHAT-CHANGES-WHEN-IT-DOES`; where they are read
# a link may be by then. Names that no file of ours has are passed over, and what is more than a run can have.
files() {
    find -P "$@" -maxdepth 1 -type f -exec stat -c '%n %s %i:%z' -- {} + 2>/dev/null |
        LC_ALL=C grep -E '^([A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]* [0-9]+ ' | head -n 2100
}
