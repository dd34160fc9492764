"""The rows of the table of causes, by theme. They are meant for looking up one row, not for reading from end to end."""
