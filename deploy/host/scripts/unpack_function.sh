#!/bin/sh
# unpack: unpacks the tar stream of a user's folder (send/folder/folder_stream.py) into `files`; fails if part of it is missing:
# `whole` is its last entry.
unpack() {
    words=$({ tar -xof - 2>&1 || echo "tar ended with $?"; } | head -n 5)
    case $words in *"tar ended with "*) ;; *) [ ! -e whole ] || { rm -f gone whole; return; } ;; esac
    printf '%s\n' "$words" "not all of the folder arrived" >&2; return 1
}
