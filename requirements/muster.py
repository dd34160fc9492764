#!/bin/sh
# fmt: off
'''exec' "$(dirname "$(readlink -f "$0")")/python" -PE "$0" "$@"
' '''
# fmt: on

# The command `muster` of a checkout: `make` copies this file to .venv/bin. The shell starts the Python beside it, to
# which the lines above are a text: a kernel takes no blank in the path behind #!, and no long one. -E: the packages in
# a PYTHONPATH are for the script, not for Muster.

import sys
from pathlib import Path

# The checkout that has this .venv, or the one whose .venv, or command, this is a link to.
TYPED = Path(sys.argv[0])
TOPS = [path.parent.parent.parent for path in (TYPED.absolute(), TYPED.resolve())]
sys.path.insert(0, str(next(top for top in TOPS if (top / "deploy/commands/main.py").is_file())))

from deploy.commands.main import main  # noqa: E402

main()
