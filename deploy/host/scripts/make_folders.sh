#!/bin/sh
# make-folders OWNER PATH...: makes each folder that is missing, with its parents, and prints `made PATH`. The new folders belong
# to OWNER (uid:gid; empty: the login). A link counts as its target: the path is the user's own.
owner=$1; shift
for path; do
    [ ! -d "$path" ] || continue
    top=$path
    while parent=$(dirname -- "$top") && [ ! -d "$parent" ]; do top=$parent; done
    mkdir -p -- "$path" || exit
    [ -z "$owner" ] || chown -R -- "$owner" "$top" || exit
    printf 'made %s\n' "$path"
done
