"""Sums an array over all ranks.

One machine:    tern run --nproc 2 all_reduce.py
Two machines, the same on both, with an address of one of them and a secret file on both:

    tern run --nnodes 2 --rdzv 10.0.0.1:7788 --secret-file job.key all_reduce.py
"""

import numpy as np

import tern

with tern.init() as group:
    # An array of the arena is used where it is; any other array would be copied.
    x = group.client.empty(1_000_000, "float32")
    x[:] = group.rank + 1
    group.all_reduce(x).wait()
    info = group.info()
    assert np.all(x == group.size * (group.size + 1) / 2)
    print(f"rank {group.rank} of {group.size} on node {info.node} of {info.node_count}: {x[0]:g}")
