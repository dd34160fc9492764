"""The cause of a failed run, read from anybody's logs. Pure but for the reading."""
