"""Tools for a release: builds with the same bytes each time, a list of parts (SBOM), and newer pins."""
