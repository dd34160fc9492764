#!/bin/sh
# make-folders OWNER PATH...: makes each folder that is missing, with those above it, and answers `made PATH`. OWNER (uid:gid, or
# nothing) gets the folders that are made. A link counts as what it leads to: the path is the user's own.
owner=$1; shift
for path; do
    [ ! -d "$path" ] || continue
    top=$path
    while parent=$(dirname -- "$top") && [ ! -d "$parent" ]; do top=$parent; done
    mkdir -p -- "$path" || exit
    [ -z "$owner" ] || chown -R -- "$owner" "$top" || exit
    printf 'made %s\n' "$path"
done
