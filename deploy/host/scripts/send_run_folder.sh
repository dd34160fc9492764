#!/bin/sh
# send-run-folder RUN: prints a run's folder as a tar stream, without the paths on standard input, one on each line. It is not
# compressed, so a host cannot make us write more than it sent. tar walks from folder to folder and follows no link; with paths as
# arguments, it would.
. ./reading.sh
enter "$1" || exit
if tar --version 2>/dev/null | grep -q GNU; then
    exec tar -cf - --format=gnu --hard-dereference --anchored --no-wildcards --exclude-from=/dev/stdin .
fi
sed 's/[][*?\\]/\\&/g' | tar -cf - -X /dev/stdin .
