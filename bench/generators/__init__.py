"""Seeded generators for the benchmarks only; the published workloads are in ``gpumatch.workloads``."""
