#!/usr/bin/env python3
"""One rank of tools/bench_torch.py: steps of the same training under gloo and under Tern, in turns.

    torch_step.py --rank 0 --address 10.77.0.1:29500 --seconds 20 --seed 1 [--accuracy]

Prints a line of JSON on rank 0: the seconds of the steps of each contestant, or with --accuracy the
share of test images that each has right.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tern.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples/torch"))
from mnist import BATCH, EPOCHS, TEST_IMAGES, images, network
from step_rounds import time_rounds

RECIPE = "3lc:s=1"
WIDTH, LAYERS, ROWS, RANKS = 1024, 6, 16, 2


def model_of(seed):
    """Some 25 MB of weights in layers, as much as a bucket of DDP has by default."""
    torch.manual_seed(seed)
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


def sharded(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def contestants(seed, groups):
    """Models by name, of the same weights."""
    made = {name: DistributedDataParallel(model_of(seed), process_group=group)
            for name, group in groups.items()}
    compressed = DistributedDataParallel(model_of(seed), process_group=groups["tern"])
    tern.torch.compress(compressed, recipe=RECIPE)
    made[f"tern, {RECIPE}"] = compressed
    made |= {f"{name}, FSDP2": sharded(model_of(seed), group) for name, group in groups.items()}
    tern.torch.compress(made["tern, FSDP2"], recipe="raw", name="fsdp")
    made["alone"] = model_of(seed)
    return made


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def measure(options, groups):
    """Every contestant has a step in each round, in an order that is drawn anew."""
    models = contestants(options.seed, groups)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3)
                  for name, model in models.items()}
    draw = torch.Generator().manual_seed(options.rank)

    def take_step(name, x):
        start = time.perf_counter()
        step(models[name], optimizers[name], x)
        return time.perf_counter() - start

    slowest = time_rounds(models, lambda: torch.randn(ROWS, WIDTH, generator=draw), take_step,
                          options)
    return {"seconds": slowest, "weights": sum(map(torch.numel, models["alone"].parameters())) * 4}


def accuracy(options, groups):
    """The MNIST example, exact and compressed."""
    pixels, labels = images()
    right = {}
    for name, recipe in (("tern", None), (f"tern, {RECIPE}", RECIPE)):
        torch.manual_seed(options.seed)
        model = DistributedDataParallel(network(), process_group=groups["tern"])
        if recipe:
            tern.torch.compress(model, recipe=recipe, name="mnist")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(EPOCHS):
            order = torch.randperm(len(pixels) - TEST_IMAGES,
                                   generator=torch.Generator().manual_seed(
                                       10 * options.seed + epoch))
            model.train()
            for batch in order[options.rank::RANKS][:len(order) // RANKS].split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(pixels[-TEST_IMAGES:]).argmax(1)
        right[name] = (found == labels[-TEST_IMAGES:]).double().mean().item()
    return {"accuracy": right}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--address", required=True, help="HOST:PORT of rank 0")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accuracy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{options.address}", rank=options.rank,
                            world_size=RANKS)
    groups = {"gloo": dist.group.WORLD, "tern": dist.new_group(backend="tern")}
    found = (accuracy if options.accuracy else measure)(options, groups)
    if options.rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
