"""The work is inherited from torch.nn."""

import torch.nn as nn

PROBLEM = "linear"
EXPECTED = {"cheat"}


class ModelNew(nn.Linear):
    pass
