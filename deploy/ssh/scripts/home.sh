#!/bin/sh
# home: our folder there.
echo "$HOME/.muster"
