"""The tasks: options become one call, and its result an exit code. One file for each family of commands."""
