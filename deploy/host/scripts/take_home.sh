#!/bin/sh
# take-home RUN: a run's folder as a tar stream, without the paths that standard input names, a line each. Not compressed:
# what is written here had to be sent. tar walks from folder to folder and follows no link; by names it would.
. ./reading.sh
enter "$1" || exit
if tar --version 2>/dev/null | grep -q GNU; then
    exec tar -cf - --hard-dereference --anchored --no-wildcards --exclude-from=/dev/stdin .
fi
sed 's/[][*?\\]/\\&/g' | tar -cf - -X /dev/stdin .
