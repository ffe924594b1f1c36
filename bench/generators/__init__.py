"""Seeded generators of what only the benchmarks match: the published workloads are in ``gpumatch.workloads``."""
