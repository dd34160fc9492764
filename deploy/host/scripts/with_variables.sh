#!/bin/sh
# with-variables COMMAND...: the first line of standard input goes to the command's descriptor 3; the rest is its standard input.
IFS= read -r variables || exit
exec 4<&0
echo "$variables" | base64 -d | "$@" 3<&0 <&4
