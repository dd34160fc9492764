"""The door to hosts: the user's own `ssh` logs in, and commands go over the connections that it holds open."""
