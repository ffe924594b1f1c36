"""Kernels for CUDA, around the same scalar bodies that the CPU's drivers call."""
