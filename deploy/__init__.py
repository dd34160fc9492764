"""The control side: from a list of hosts to a finished, recorded run. It needs no torch and never imports `trainer`."""
