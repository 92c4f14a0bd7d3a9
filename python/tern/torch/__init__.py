"""Tern for PyTorch: a backend of torch.distributed, and compression for DDP in one line.

    import torch.distributed as dist
    import tern.torch                    # not needed from PyTorch 2.14 on

    dist.init_process_group("tern")      # exact, as gloo is

Importing it registers the backend and starts nothing.
"""

from .registration import register

register()

__all__ = ["register"]
