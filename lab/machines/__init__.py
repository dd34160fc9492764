"""Machines as people have them: rented, inherited, hardened, half upgraded. A row breaks and mends a host of a rack.

Each row was written by somebody who had not read preflight's rules. Of 529 there is one or two of each cause here: the
others said the same again. A new one goes into the file of what it breaks.
"""
