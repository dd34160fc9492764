#!/bin/sh
# taken NUMBER...: the uids that a user or a group here has.
for id; do
    name=$(getent passwd "$id" || getent group "$id" || awk -F: -v id="$id" '$3 == id' /etc/passwd /etc/group)
    [ -z "$name" ] || echo "$id"
done
