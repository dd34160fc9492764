#!/bin/sh
# listing FOLDER: a digest of what is in it: the names, sizes, times and rights of its files, and nothing of their content.
# send/folder/content.py makes the same one. GNU's find says it without another program, in two thirds of the time.
files() {
    case $(find . -maxdepth 0 -printf %T@ 2>/dev/null) in
    *.??????????) find -P . -type f -printf 'f %m %s %T@ %p\n' ;;
    *) find -P . -type f -exec stat -c 'f %a %s %Y.0000000000 %n' -- {} + ;;
    esac
}
listing() (
    cd -P -- "$1" && {
        files && find -P . ! -type f ! -type d -exec stat -c 'l %f %s %n' -- {} +
    } | LC_ALL=C sort | sha256sum | cut -d ' ' -f 1
)
