#!/bin/sh
# put PATH SUFFIX MODE SIZE: writes standard input to PATH, whole or not at all. It checks the size, because a broken
# connection looks like the end of the input.
umask 077; aside="$1.$2"; mkdir -p -- "$(dirname -- "$1")" && cat > "$aside" || { rm -f -- "$aside"; exit 1; }
if [ "$(wc -c < "$aside")" -eq "$4" ] && chmod "$3" "$aside" && mv -f -- "$aside" "$1"; then exit 0; fi
rm -f -- "$aside"; echo "$1: not all of it arrived" >&2; exit 1
