"""Training on the CPU, which writes its argument's bytes to stdout: `bytes.py WORD`."""

import os
import sys

import torch
from torch import nn

if __name__ == "__main__":
    sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + b"\n")
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
