#!/bin/sh
# take-in RUN NAME: writes standard input into the run's folder, as NAME. The run has no container at that time.
umask 077
mkdir -p -- "$HOME/.muster/runs/$1" || exit
. ./reading.sh
enter "$1" && rm -f -- "$2" && set -C && cat >"./$2"
