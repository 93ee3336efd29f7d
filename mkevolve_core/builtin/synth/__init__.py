"""Triton source for a traced graph: lower, plan kernels, emit them, assemble the module."""
