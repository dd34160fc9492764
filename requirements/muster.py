#!/bin/sh
# fmt: off
'''exec' "$(dirname "$(readlink -f "$0")")/python" -PE "$0" "$@"
' '''
# fmt: on

# The command `muster` of a checkout: `make` copies this file to .venv/bin. The shell starts the Python next to it; to
# Python, the lines above are only a string. (A #! line cannot have a path with blanks, or a long one.) -E: packages in
# PYTHONPATH are for the script, not for Muster.

import sys
from pathlib import Path

# The checkout that contains this .venv, or the one that the .venv or this command links to.
TYPED = Path(sys.argv[0])
TOPS = [path.parent.parent.parent for path in (TYPED.absolute(), TYPED.resolve())]
sys.path.insert(0, str(next(top for top in TOPS if (top / "deploy/commands/main.py").is_file())))

from deploy.commands.main import main  # noqa: E402

main()
