"""Find the cause of a failed run in its logs, from Muster or any other launcher. Pure, except for reading the files."""
