"""One remote host: the commands it is given, the readers that check its answers, its lock, its audit log."""
