"""The programs that preflight sends to the hosts, and the code that talks with them."""
