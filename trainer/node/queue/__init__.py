"""What runs claim on a host, and who waits for it."""
