#!/bin/sh
# size FOLDER: `KILOBYTES FOLDER`: the sizes of its files, or the disk space they take where du knows no more.
du -sk --apparent-size -- "$1" 2>/dev/null || du -sk -- "$1"
