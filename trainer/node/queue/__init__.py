"""What runs claim of a host, and those who wait for it."""
