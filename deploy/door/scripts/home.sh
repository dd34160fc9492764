#!/bin/sh
# home: the first line of standard input, to show that it arrives, and our folder there.
read -r line
echo "$line"
echo "$HOME/.muster"
