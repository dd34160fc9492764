#!/bin/sh
# guard FOLDER SSH: runs on this machine. It waits until its input ends, which happens if the Muster process is killed.
# Then it ends every connection whose socket is in the folder, and removes the folder.
trap '' INT HUP TERM; PATH=$PATH:/usr/bin:/bin; read -r _
for socket in "$1"/*; do [ ! -S "$socket" ] || "$2" -F none -S "$socket" -O exit muster; done >/dev/null 2>&1
rm -rf -- "$1"
