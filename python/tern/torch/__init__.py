"""Tern for PyTorch: a backend of torch.distributed, and compression for DDP in one line.

    import torch.distributed as dist
    import tern.torch                    # not needed from PyTorch 2.14 on

    dist.init_process_group("tern")      # exact, as gloo is
    model = DistributedDataParallel(model)
    tern.torch.compress(model)           # gradients of large layers by the daemon's choice

Importing it registers the backend and starts nothing.
"""

from .backend import TernBackend
from .compression import Compression, compress
from .estimation import Estimate, Row, estimate
from .process_group import TernProcessGroup
from .registration import register
from .replicas import ReplicatedCompression
from .serving import ParameterServer
from .sharded import ShardedCompression

register()

__all__ = ["Compression", "Estimate", "ParameterServer", "ReplicatedCompression", "Row",
           "ShardedCompression", "TernBackend", "TernProcessGroup", "compress", "estimate",
           "register"]
