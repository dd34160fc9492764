#!/bin/sh
# bring-python VERSION: installs a Python in ~/.muster/python/VERSION, on a host that has none or only an old one.
# Standard input: a line, then an archive. If the line is empty, the archive contains `python`. Otherwise it contains
# uv, and the line has, in base64, the shell commands that make uv download a Python. They may contain passwords, so
# they are in no file and no command line. Prints `python` once that Python starts.
umask 077
place=$HOME/.muster/python
read -r get
mkdir -p -- "$place" && part=$(mktemp -d "$place/.coming.XXXXXX") || exit
trap 'rm -rf -- "$part"' EXIT
tar -xzf - -C "$part" && cd -- "$part" || exit
[ -z "$get" ] || {
    echo "$get" | base64 -d | sh >said 2>&1 || { tail -n 1 said >&2; exit 1; }
    mv -- got/cpython-"$1"-* python || exit
}
python/bin/python3 -I -S -c '' || exit
rm -rf -- "${place:?}/$1" && mv -- python "$place/$1" && echo python
