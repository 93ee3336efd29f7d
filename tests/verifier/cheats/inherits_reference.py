"""Nothing of its own: the reference under another name."""

from problem import Model

PROBLEM = "affine"
EXPECTED = {"cheat", "interface_error", "compile_error", "runtime_error"}


class ModelNew(Model):
    pass
