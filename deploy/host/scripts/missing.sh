#!/bin/sh
# missing PATH...: prints each path that does not exist, one on each line. A folder that only root may read does exist.
for path; do
    [ -e "$path" ] || case $(LC_ALL=C ls -d -- "$path" 2>&1) in *'No such file'*) printf '%s\n' "$path" ;; esac
done
