"""The control side: from a list of hosts to a finished, recorded run. Needs no torch; never imports `trainer`."""
