#!/usr/bin/env python3
"""One rank of tools/bench_gpu.py: steps of a training on a GPU, in turns with each way to average
gradients. Both ranks use the same GPU.

    torch_gpu_step.py --rank 0 --address 127.0.0.1:29500 --seconds 10 --seed 1

Prints a line of JSON on rank 0: the seconds of the steps of each contestant, and whether gradients
that are encoded on the GPU have the same averages, bit for bit, as those encoded on the processor.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
from step_rounds import time_rounds
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tern.torch
from tern.torch import on_device

RECIPES = ("int:bits=8", "3lc:s=1")
WIDTH, LAYERS, ROWS, RANKS = 2048, 6, 2048, 2
DEVICE = torch.device("cuda", 0)


def model_of(seed):
    """Some 100 MB of weights."""
    torch.manual_seed(seed)
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()]
    return nn.Sequential(*layers).to(DEVICE)


def compressed(seed, recipe, on_gpu):
    """A model whose gradients travel by the recipe, encoded on the GPU or, by way of pinned copies,
    on the processor. Each has a group of its own, and all have the same names, which decide what a
    node owns."""
    model = DistributedDataParallel(model_of(seed), device_ids=[DEVICE.index])
    real = on_device.is_gpu
    if not on_gpu:
        on_device.is_gpu = lambda place: False
    try:
        made = tern.torch.compress(model, recipe=recipe)
    finally:
        on_device.is_gpu = real
    if ("encoded on the GPU" in made.describe()) != on_gpu:
        raise SystemExit(f"not what it should be: {made.describe()}")
    return model, made


class WholeBucket:
    """All gradients of a model, as DDP shows them to a hook."""

    def __init__(self, model, values):
        self._parameters = list(model.module.parameters())
        self._values = values

    def buffer(self):
        return self._values

    def parameters(self):
        return self._parameters

    def index(self):
        return 0

    def is_last(self):
        return True


def averages(model, compression, rank):
    """Of some steps with made-up gradients: backward() of a GPU need not give the same bits twice."""
    count = sum(map(torch.numel, model.module.parameters()))
    found = []
    for step in range(3):
        draw = torch.Generator(DEVICE).manual_seed(10 * step + rank)
        values = torch.randn(count, device=DEVICE, generator=draw)
        found.append(compression.average(WholeBucket(model, values)).wait().clone())
    return found


def contestants(seed, rank):
    """Models by name, of the same weights; and whether GPU and copies have the same averages."""
    made = {"alone": model_of(seed),
            "gloo": DistributedDataParallel(model_of(seed), device_ids=[DEVICE.index]),
            "raw, GPU": compressed(seed, "raw", True)[0]}
    same = {}
    for recipe in RECIPES:
        on_gpu = compressed(seed, recipe, True)
        copied = compressed(seed, recipe, False)
        same[recipe] = all(map(torch.equal, averages(*on_gpu, rank), averages(*copied, rank)))
        made[f"{recipe}, GPU"], made[f"{recipe}, copies"] = on_gpu[0], copied[0]
    return made, same


def step(model, optimizer, x):
    torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(options):
    """Every contestant has a step with the same data in each round, in an order that is drawn
    anew."""
    models, same = contestants(options.seed, options.rank)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3)
                  for name, model in models.items()}
    draw = torch.Generator().manual_seed(options.rank)
    slowest = time_rounds(models, lambda: torch.randn(ROWS, WIDTH, generator=draw).to(DEVICE),
                          lambda name, x: step(models[name], optimizers[name], x), options)
    return {"seconds": slowest, "same_averages": same, "rounds": len(slowest["alone"]),
            "weights": sum(map(torch.numel, models["alone"].parameters())) * 4,
            "torch": torch.__version__, "gpu": torch.cuda.get_device_name(DEVICE)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--address", required=True, help="HOST:PORT of rank 0")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("gloo", init_method=f"tcp://{options.address}", rank=options.rank,
                            world_size=RANKS)
    found = measure(options)
    if options.rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
