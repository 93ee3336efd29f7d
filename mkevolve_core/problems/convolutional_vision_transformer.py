"""A small vision transformer: patches by convolution, one token for the image, one for the class.

The two tokens of each image attend to each other (`batch_first`), so that the class depends on the image.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(
        self,
        num_classes,
        embed_dim=128,
        num_heads=4,
        num_layers=6,
        mlp_ratio=4.0,
        patch_size=4,
        in_channels=3,
        image_size=32,
    ):
        super().__init__()
        patches = (image_size // patch_size) ** 2
        self.conv1 = nn.Conv2d(in_channels, embed_dim, kernel_size=patch_size, stride=patch_size)
        self.linear_proj = nn.Linear(embed_dim * patches, embed_dim)
        self.transformer_layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                d_model=embed_dim,
                nhead=num_heads,
                dim_feedforward=int(embed_dim * mlp_ratio),
                dropout=0.0,
                batch_first=True,
            )
            for _ in range(num_layers)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.fc_out = nn.Linear(embed_dim, num_classes)

    def forward(self, x):
        x = self.conv1(x)  # (B, E, H / P, W / P)
        x = self.linear_proj(x.flatten(start_dim=1))  # (B, E)
        cls_token = self.cls_token.expand(x.size(0), -1, -1)
        x = torch.cat((cls_token, x.unsqueeze(1)), dim=1)  # (B, 2, E)
        for layer in self.transformer_layers:
            x = layer(x)
        return self.fc_out(x[:, 0])


def get_inputs():
    return [torch.randn(10, 3, 32, 32)]


def get_init_inputs():
    return [1000, 128, 4, 6, 4.0, 4, 3, 32]
