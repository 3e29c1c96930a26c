"""The NumPy backend."""

from .backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
