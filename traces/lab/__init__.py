"""Sweeps: traces x policies x devices x seeds, on any executor."""
