"""A folder as files identified by digests: what Muster sends, what stays on this machine, and the transfer to hosts."""
