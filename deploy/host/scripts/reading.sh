#!/bin/sh
# For scripts that read a run's folder. The run's container writes there while we read, as our login user. Any name may be a link
# into our home, a FIFO, a file of a terabyte or a name of two lines, and may become one between two of our steps. So nothing here
# follows a path through the folder. docs/decisions/0017 gives the reasons.
runs=$(cd -P -- "$HOME/.muster/runs" 2>/dev/null && env pwd -P)
# plain NAME: whether this can be a run's name.
plain() { case $1 in '' | [!A-Za-z0-9_]* | *[!A-Za-z0-9._-]*) return 1 ;; esac; }
# enter RUN/nodes: changes into that folder if it is really below the runs. cd follows links, so we ask the kernel where we are (a
# shell's own pwd may only repeat the path). After that, renaming folders does not move us.
enter() { [ -n "$runs" ] && cd -P -- "$runs/$1" 2>/dev/null && [ "$(env pwd -P)" = "$runs/$1" ]; }
# piece NAME OFFSET BYTES: prints bytes of a file in the current folder. dd opens it without following a link, and without waiting
# for a FIFO's writer. If dd cannot do that (busybox), the opened file is compared with the name.
piece() { dd if="./$1" iflag=nofollow,nonblock,skip_bytes,count_bytes skip="$2" count="$3" bs=65536 2>/dev/null; }
dd if=/dev/null iflag=nofollow,nonblock,skip_bytes,count_bytes count=0 2>/dev/null || piece() {
    # shellcheck disable=SC2016  # the inner shell expands it
    [ ! -f "./$1" ] || timeout 20 sh -c '
        exec <"./$1" && [ "$(readlink /proc/$$/fd/0)" = "$(env pwd -P)/$1" ] || exit
        tail -c "+$(($2 + 1))" | head -c "$3"' piece "$1" "$2" "$3"
}
# read_at RUN nodes/NAME OFFSET BYTES: prints bytes of a file in a run's folder.
read_at() (
    case $2 in */*) enter "$1/${2%/*}" ;; *) enter "$1" ;; esac && piece "${2##*/}" "$3" "$4"
)
# files PATH...: lists the plain files there and one level below, as `nodes/NAME SIZE STAMP`; the stamp changes with the file. A
# name may be a link by the time it is read. Names that our files never have, and files beyond a run's limit, are left out.
files() {
    find -P "$@" -maxdepth 1 -type f -exec stat -c '%n %s %i:%z' -- {} + 2>/dev/null |
        LC_ALL=C grep -E '^([A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]* [0-9]+ ' | head -n 10000
}
