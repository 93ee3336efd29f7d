"""The vision transformer's shape in miniature: one part beyond the built-in writer, four within it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, classes, dim, heads, layers):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, kernel_size=4, stride=4)
        self.proj = nn.Linear(dim * 4, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.proj(self.conv(x).flatten(1))
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x.unsqueeze(1)), dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


def get_inputs():
    return [torch.randn(3, 3, 8, 8)]


def get_init_inputs():
    return [10, 32, 2, 2]
