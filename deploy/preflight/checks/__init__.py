"""One file for each check: answers in, findings out. Pure."""
