"""Compute shaders: GLSL sources, their compiled SPIR-V, and the manifest that ties the two together."""
