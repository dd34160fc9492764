#!/bin/sh
# look-cluster SHARED RUN: prints what a deploy must know about a login node. SHARED: a folder, relative to the home unless it is
# absolute; empty: the home. Prints Slurm's `version WORDS`, `lacks COMMAND...`, `shared PATH` or `wrong WORDS`, and `taken` if
# the run's folder already exists, and is not from a start that was cut off before its job was submitted.
lacks=
for command in sbatch squeue scontrol scancel flock tar base64; do command -v "$command" >/dev/null || lacks="$lacks $command"; done
[ -z "$lacks" ] || echo "lacks$lacks"
echo "version $(sbatch --version 2>/dev/null | head -n 1)"
cd -P -- "$HOME" || exit
[ -z "$1" ] || cd -P -- "$1" 2>/dev/null || { echo "wrong no such folder there"; exit 0; }
[ -w . ] || { echo "wrong you may not write there"; exit 0; }
shared=$(env pwd -P)
echo "shared $shared"
run=${2:+"$shared/.muster/runs/$2"}
[ ! -e "$run" ] || [ -e "$run/.making" ] || echo taken
