"""Tools for a release: builds with the same bytes each time, the SBOM, and newer pins."""
