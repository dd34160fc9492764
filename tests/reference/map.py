"""`make map` lists each file of the code, with its first line and the names that it defines."""

import re
import signal
import subprocess
import sys
from pathlib import Path

_FIRST = re.compile(r'^(?:r?"""|# |// |{# |/\* )(.*?)(?:"""| -?#}| \*/)?$', re.MULTILINE)
_NAME = re.compile(r"^ *(?:async )?(?:(?:def|class|function) +_*(\w+)|(\w+)\(\) *\{)", re.MULTILINE)
# Constants of a module: limits, numbers, choices.
_CONSTANTS = re.compile(r"^((?:_?[A-Z][A-Z0-9_]*(?:, )?)+)(?:: [^=\n]+)? = ", re.MULTILINE)


def main(folders: list[str]) -> None:
    """Print each file of the folders with a line that says what it decides, and below it the names that it defines."""
    for name in subprocess.check_output(["git", "ls-files", *folders], text=True).splitlines():
        text = Path(name).read_text() if name.endswith((".py", ".sh", ".js", ".html", ".css")) else ""
        if first := _FIRST.search(text):
            print(f"{name}  {first[1]}")
            names = [python or shell for python, shell in _NAME.findall(text)]
            names += [name.lstrip("_") for group in _CONSTANTS.findall(text) for name in group.split(", ")]
            if names := [word for word in dict.fromkeys(names) if not word.endswith("__")]:
                print("    " + " ".join(names))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make map | head`
    main(sys.argv[1:] or ["deploy", "trainer", "muster"])
