#!/bin/sh
# listing FOLDER: a digest of what is in it: the names, sizes, times and rights of its files, and nothing of their content.
# image/content.py makes the same one.
listing() (
    cd -P -- "$1" && {
        find -P . -type f -exec stat -c 'f %f %s %Y %n' -- {} + && find -P . ! -type f ! -type d -exec stat -c 'l %f %s %n' -- {} +
    } | LC_ALL=C sort | sha256sum | cut -d ' ' -f 1
)
