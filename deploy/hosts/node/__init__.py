"""What each host runs: its containers and their variables, the network and the packages that they get."""
