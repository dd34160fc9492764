"""What holds for every test."""

import signal

# A shell that runs the tests in the background has them ignore SIGINT, and programs they start inherit that: a Ctrl-C
# sent to one would never arrive. With a handler here they start with SIGINT's default, as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
