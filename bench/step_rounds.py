"""Steps of contestants in turns, of all ranks of torch.distributed."""

import random
import time

import torch
import torch.distributed as dist


# DDP orders its buckets anew after the first step, and the first compressed one allocates.
_WARM_UPS = 3


def time_rounds(names, draw_input, take_step, options):
    """The seconds of each contestant's steps, of the slowest rank each. In every round each
    contestant has a step on the same input, in an order that is drawn anew from `options.seed`.

    `draw_input()`: of a round. `take_step(name, x)`: returns this rank's seconds. The first rounds
    do not count; the others go on for `options.seconds`. Call it on all ranks, with a default group
    that reduces on the processor.
    """
    order = random.Random(options.seed)
    found = {name: [] for name in names}
    began, number, goes_on = time.monotonic(), 0, torch.ones(1)
    while goes_on:
        x = draw_input()
        for name in order.sample(sorted(names), len(names)):
            dist.barrier()
            found[name].append(take_step(name, x))
        number += 1
        if number == _WARM_UPS:
            began, found = time.monotonic(), {name: [] for name in names}
        goes_on = torch.tensor([float(time.monotonic() - began < options.seconds)])
        dist.broadcast(goes_on, 0)
    slowest = {}
    for name, own in found.items():
        every = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(every, dist.ReduceOp.MAX)
        slowest[name] = every.tolist()
    return slowest
