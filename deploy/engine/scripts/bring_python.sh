#!/bin/sh
# bring-python VERSION: a Python for a host that has none, or an old one: ~/.muster/python/VERSION. Standard input: a line, then an
# archive with `python`; or with uv, and the line says in base64 how it gets one: it may have passwords, so it is in no file and no
# command line. Says `python` once that Python starts.
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
