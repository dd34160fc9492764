"""Figures of models that the ranks have cut; each file is a part of `python -m benchmarks.meshes`."""
