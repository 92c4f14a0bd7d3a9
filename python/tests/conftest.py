import os
import secrets

import pytest

from cluster import daemons, started_with, wait_for_end
from jobs import PROGRAM, SECRET, Job
from tern._control import ask
from tern._library import library

# How long what the tests have started may take to end: a daemon of a user's own ends when idle.
_END_MS = 30_000


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests():
    """Daemons, keepers and ranks are children of children: they are known by a variable that all of
    them inherit."""
    run = secrets.token_hex(8)
    os.environ["TERN_TEST_RUN"] = run
    yield
    left = [command for pid, command in started_with(f"TERN_TEST_RUN={run}")
            # Python's own, which ends with this process.
            if b"multiprocessing.resource_tracker" not in command
            and not wait_for_end(pid, _END_MS)]
    assert not left, f"still running: {left}"


@pytest.fixture(scope="session")
def two_nodes():
    """Two daemons, which tests share that harm neither."""
    with daemons(2) as nodes:
        yield nodes


@pytest.fixture
def node(two_nodes):
    return two_nodes[0]


@pytest.fixture
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    yield Job(folder)
    runtime = folder / "tern"
    assert not list(runtime.glob("run-*")), "a folder of a job is left"
    if (runtime / "control.sock").exists():
        # It ends by itself, soon; the test waits for that, so that none is left.
        try:
            wait_for_end(ask(runtime / "control.sock", "status")["pid"])
        except OSError:
            pass


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
