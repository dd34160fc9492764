"""A folder as files by digest: what is sent of it, what stays here, and the way to hosts."""
