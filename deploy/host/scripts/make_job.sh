#!/bin/sh
# make-job SHARED RUN: makes the run's folder from a tar stream: `files/` is the user's folder, which becomes `work`; `whole` is
# the last entry, so a stream that was cut off lacks it. `.making` marks a folder that no job has yet: any other folder is left as
# it is.
. ./unpack_function.sh
umask 077; trap 'exit 1' HUP INT TERM PIPE
mkdir -p -- "$1/.muster/runs" && cd -P -- "$1/.muster/runs" || exit
[ ! -e "$2" ] || [ -e "$2/.making" ] || { echo "$2: a run of this name exists there already" >&2; exit 1; }
rm -rf -- "./$2" && mkdir -- "$2" "$2/files" && : >"$2/.making" && cd -P -- "./$2" || exit
unpack || { cd .. && rm -rf -- "./$2"; exit 1; }
mv files work && mkdir nodes outcome ranks logs
