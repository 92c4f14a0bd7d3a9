"""These tests need PyTorch, which the environment of the other tests does not have: it is large.
`make test-torch` makes one that has it, outside of the tree."""

import importlib.util

# This folder itself can be found by the name torch, but not as a file.
_found = importlib.util.find_spec("torch")
HAS_TORCH = _found is not None and _found.origin is not None

collect_ignore_glob = [] if HAS_TORCH else ["*.py"]
