"""Leaves by an exception that is no Exception."""

import torch.nn as nn

PROBLEM = "affine"
EXPECTED = {"runtime_error", "interface_error", "compile_error"}


class ModelNew(nn.Module):
    pass


raise SystemExit(0)
