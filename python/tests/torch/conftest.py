"""These tests need PyTorch, which the environment of the other tests does not have: it is large.
`make test-torch` makes one that has it, outside of the tree."""

import importlib.util

# This folder itself can be imported by the name, so that it is asked for torch's own parts.
HAS_TORCH = importlib.util.find_spec("torch.distributed") is not None

collect_ignore_glob = [] if HAS_TORCH else ["*.py"]


def pytest_report_header():
    return None if HAS_TORCH else \
        "tests/torch: left out, for PyTorch is not installed here; `make test-torch` runs them"
