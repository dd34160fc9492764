#!/bin/sh
# take FOLDER: a run folder as a tar stream. Not compressed: what is written here had to be sent.
cd -P -- "$1" && exec tar -cf - --exclude="./nodes/.*" .
