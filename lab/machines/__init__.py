"""Machines as people have them: rented, inherited, hardened, half upgraded. A row breaks and mends a rack host.

Each row was written by somebody who had not read preflight's rules. Of 529 rows, one or two for each cause are here:
the others were repetitions. A new row goes into the file for what it breaks.
"""
