#!/bin/sh
# missing PATH...: a line for each path that does not exist. A folder that only root may read does exist.
for path; do
    [ -e "$path" ] || case $(LC_ALL=C ls -d -- "$path" 2>&1) in *'No such file'*) printf '%s\n' "$path" ;; esac
done
