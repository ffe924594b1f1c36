"""Overlays simulated over arrays, with failures, and the thesis' experiments."""
