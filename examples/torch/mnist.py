"""MNIST in DistributedDataParallel: a training that uses Tern by one changed string.

    torchrun --nproc-per-node 2 mnist.py              # exact, as with gloo
    torchrun --nproc-per-node 2 mnist.py --compress   # gradients of the large layers as 3LC

With two daemons start it once for each, as two nodes would: README.md beside this file has the
lines. The images are those of examples/data: 9,000 to learn from, 1,000 to test with.
"""

import argparse
import gzip
import hashlib
import pathlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern.torch

DATA = pathlib.Path(__file__).parents[1] / "data"
TEST_IMAGES, EPOCHS, BATCH = 1000, 3, 64


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """All images in [0, 1], (n, 1, 28, 28), and what they show."""
    def read(name: str, header: int) -> np.ndarray:
        with gzip.open(DATA / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    pixels = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = read("t10k-labels-idx1-ubyte.gz", 8)
    return torch.from_numpy(pixels / np.float32(255)), torch.from_numpy(labels.astype(np.int64))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def digest(model: nn.Module) -> str:
    """Of all parameters: equal bits give equal text."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def train(backend: str, compress: bool) -> None:
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    if compress:
        tern.torch.compress(model, recipe="3lc:s=1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    pixels, labels = images()
    pixels, test_pixels = pixels[:-TEST_IMAGES], pixels[-TEST_IMAGES:]
    labels, test_labels = labels[:-TEST_IMAGES], labels[-TEST_IMAGES:]

    for epoch in range(EPOCHS):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        model.train()
        for batch in order[rank::size][:len(order) // size].split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(test_pixels).argmax(1) == test_labels).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch + 1}: {100 * right.item() / size / TEST_IMAGES:.1f} % right")
    print(f"rank {rank}: parameters {digest(model.module)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="tern")
    parser.add_argument("--compress", action="store_true")
    options = parser.parse_args()
    train(options.backend, options.compress)
