#!/bin/sh
# containers LABEL: a line `container JSON` for each container that carries the label.
label=$1
. ./list_containers.sh
