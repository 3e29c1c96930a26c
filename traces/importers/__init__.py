"""Readers of public traces in other formats, which write them as workloads in ours."""
