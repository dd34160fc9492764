#!/bin/sh
# taken NUMBER...: the uids that somebody has. A number with a + in front counts as taken also if it owns files; the uid of
# earlier runs owns theirs, and stands without it.
for word; do
    id=${word#+}
    name=$(getent passwd "$id" || getent group "$id" || awk -F: -v id="$id" '$3 == id' /etc/passwd /etc/group)
    [ "$word" = "$id" ] || [ -n "$name" ] ||
        name=$(find /home /srv /data /mnt /tmp /var/tmp -maxdepth 1 -uid "$id" 2>/dev/null | head -n 1)
    [ -z "$name" ] || echo "$id"
done
