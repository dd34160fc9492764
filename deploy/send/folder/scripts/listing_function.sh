#!/bin/sh
# listing FOLDER: print a digest of the names, sizes, times and permissions of the files in it, but not of their content.
# send/folder/content.py computes the same one. GNU's find prints them without another program, in two thirds of the time.
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
