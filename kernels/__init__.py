"""Compiled code: plain functions over arrays, one module per subject. Imported only when something is matched."""
