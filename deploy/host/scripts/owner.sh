#!/bin/sh
# owner RUN: prints the uid that owns the run's folder here.
. ./reading.sh
enter "$1" && stat -c %u . || :
