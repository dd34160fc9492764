#!/bin/sh
# missing PATH...: a line for each path that is not there. A folder that only root may read is not a missing one.
for path; do
    [ -e "$path" ] || case $(LC_ALL=C ls -d -- "$path" 2>&1) in *'No such file'*) printf '%s\n' "$path" ;; esac
done
