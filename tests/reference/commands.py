"""Makes docs/reference/commands.md from the tree of commands (deploy/commands/)."""

from __future__ import annotations

import click

from deploy.commands import main
from deploy.commands.command import Command

HEAD = """\
# Commands

Made from `deploy/commands/` by `python -m tests.reference`; do not edit by hand. `muster COMMAND --help` shows the
same, with what each option means; so does [options.md](options.md).
"""


def commands_page() -> str:
    """The page, with a section for each group of the help, and a part for each command in it."""
    commands = {each.name: each for each in main.every_command()}
    parts = [HEAD]
    for title, modules in main._GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [describe_command(commands[name]) for names in modules.values() for name in names]
    return "\n".join(parts)


def describe_command(command: Command) -> str:
    """The part about a command, from its help: what it does, an example, its exit codes, the names of its options."""
    does, _, rest = (command.help or "").partition("Example:\n")
    example = rest.partition("Exit codes:\n")[0]
    codes = [f"`{code}` {meaning}" for code, meaning in codes_of(command).items()]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    named = [f"`{each.name}`" for each in arguments if each.name]
    flags = [f"[`{flag}`](options.md#{flag})" for flag in sorted(_flags(command))]
    parts = [
        f"### {command.name}",
        "",
        does.strip(),
        "",
        "```",
        *(line.strip() for line in example.strip().splitlines()),
        "```",
        *([f"Words: {', '.join(named)}.", ""] if named else []),
        f"Exit codes: {'; '.join(codes)}.",
        "",
        f"Options: {', '.join(flags)}." if flags else "It has no options.",
        "",
    ]
    return "\n".join(parts)


def _flags(command: Command) -> set[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {flag for each in options for flag in each.opts if flag.startswith("--")} - {"--help", "--help-all"}


def codes_of(command: Command) -> dict[int, str]:
    """The meaning of each exit code of a command, from its help."""
    codes: dict[int, str] = {}
    for line in (command.help or "").partition("Exit codes:\n")[2].splitlines():
        code, _, meaning = line.strip().partition("  ")
        if code.isdigit():
            last = int(code)
            codes[last] = meaning
        elif line.strip():
            codes[last] += f" {line.strip()}"
    return codes
