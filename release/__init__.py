"""What a release needs: the same bytes each time, a list of what is in it, and newer pins."""
