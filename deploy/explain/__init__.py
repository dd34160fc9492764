"""Find the cause of a failed run in its logs, Muster's or any other. Pure, except for reading the files."""
