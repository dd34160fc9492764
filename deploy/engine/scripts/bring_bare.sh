#!/bin/sh
# bring-bare DIGEST: makes this host's own engine, whose containers are processes of the login: unpacks standard input, an archive
# with the digest DIGEST, below ~/.muster/bin, and writes the program `docker` there, which the PATH of our commands ends with. Says
# `python PATH` of the newest Python that it can use, or nothing if there is none.
umask 077
place=$HOME/.muster/bin found=
for name in python3.14 python3.13 python3.12 python3.11 python3; do
    # shellcheck disable=SC2016  # Python reads it
    found=$(command -v "$name") && "$found" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    found=
done
[ -n "$found" ] || exit 0
mkdir -p -- "$place" || exit
[ -d "$place/$1" ] || {
    part=$(mktemp -d "$place/.coming.XXXXXX") || exit
    "$found" -I -S -c 'import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz").extractall(sys.argv[1])' "$part" &&
        mv -- "$part" "$place/$1" || { rm -rf -- "$part"; exit 1; }
}
# Beside it nothing may stand: a folder of this name that another start brought is the same.
printf '#!/bin/sh\nexec "%s" -I -S -c "import sys; sys.path.insert(0, sys.argv.pop(1)); from bare.main import main; sys.exit(main())" "%s" "$@"\n' \
    "$found" "$place/$1" >"$place/.docker.$$" && chmod 700 "$place/.docker.$$" && mv -f -- "$place/.docker.$$" "$place/docker" || exit
for old in "$place"/*; do
    case $old in "$place/docker" | "$place/$1") ;; *) rm -rf -- "$old" ;; esac
done
"$place/docker" image add muster-bare:python "" "" && echo "python $found"
