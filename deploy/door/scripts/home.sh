#!/bin/sh
# home: prints the first line of standard input, to show that input arrives, and the path of Muster's folder.
read -r line
echo "$line"
echo "$HOME/.muster"
