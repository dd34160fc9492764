#!/bin/sh
# uid-taken NUMBER...: prints those of these numbers that are the id of a user or a group here.
for id; do
    name=$(getent passwd "$id" || getent group "$id" || awk -F: -v id="$id" '$3 == id' /etc/passwd /etc/group)
    [ -z "$name" ] || echo "$id"
done
