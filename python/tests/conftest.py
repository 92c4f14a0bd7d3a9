import os

import pytest

from cluster import daemons
from tern._library import library


@pytest.fixture(scope="session")
def two_nodes():
    """Two daemons, which tests share that harm neither."""
    with daemons(2) as nodes:
        yield nodes


@pytest.fixture
def node(two_nodes):
    return two_nodes[0]


def pytest_runtest_setup(item):
    """A test that needs a collective says so by a mark. It is skipped, with the version in the
    reason, where the library has none. With TERN_OWN_BUILD the library is this tree's, which has
    all of them: then the test has failed."""
    for mark in item.iter_markers("collective"):
        for name in mark.args:
            if name not in library().collectives:
                give_up = pytest.fail if os.environ.get("TERN_OWN_BUILD") else pytest.skip
                give_up(f"libtern {library().version} at {library().path} has no tern_{name}")


def pytest_configure(config):
    config.addinivalue_line("markers", "collective(*names): needs these functions of libtern")
