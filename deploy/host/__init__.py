"""One remote host: the commands that it runs for us, the readers that check its answers, its lock, its audit log."""
