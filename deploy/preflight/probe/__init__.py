"""What preflight sends to the hosts, and the conversation with it."""
