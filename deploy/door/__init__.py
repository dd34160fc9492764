"""SSH access to hosts: the user's own `ssh` logs in, and commands run over the connections that it holds open."""
