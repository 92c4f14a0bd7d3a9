"""The examples, one rank on each of two daemons, started as two nodes start them."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from tern.torch.backend import has_python_backends

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "torch"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(nodes, *command, ranks=1, **environment):
    """The output of both nodes. One thread for each of their ranks: all share this machine."""
    port = free_port()
    started = [subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2",
         "--nproc-per-node", str(ranks), "--node-rank", str(number), "--master-addr", "127.0.0.1",
         "--master-port", str(port), *map(str, command)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "TERN_SOCKET": node.socket, "OMP_NUM_THREADS": "1", **environment})
        for number, node in enumerate(nodes)]
    outputs = [each.communicate()[0] for each in started]
    assert [each.returncode for each in started] == [0, 0], "".join(outputs)
    return outputs


def test_mnist_has_the_same_bits_on_all_ranks(two_nodes):
    outputs = run(two_nodes, EXAMPLES / "mnist.py")
    digests = [re.search(r"parameters (\w+)", output).group(1) for output in outputs]
    assert digests[0] == digests[1]
    assert float(re.search(r"epoch 3: ([\d.]+) %", outputs[0]).group(1)) > 95


def test_mnist_learns_from_compressed_gradients(two_nodes):
    outputs = run(two_nodes, EXAMPLES / "mnist.py", "--compress")
    assert float(re.search(r"epoch 3: ([\d.]+) %", outputs[0]).group(1)) > 95


def test_diloco(two_nodes):
    output = run(two_nodes, EXAMPLES / "diloco.py")[0]
    assert float(re.search(r"round 10: loss ([\d.]+)", output).group(1)) < 2.3
    assert float(re.search(r"([\d.]+) times less than raw", output).group(1)) > 7


def test_a_server_has_the_same_bits_on_all_ranks(two_nodes):
    outputs = run(two_nodes, EXAMPLES / "server.py")
    digests = [re.search(r"parameters (\w+)", output).group(1) for output in outputs]
    assert digests[0] == digests[1]
    assert float(re.search(r"epoch 3: ([\d.]+) %", outputs[0]).group(1)) > 95
    assert float(re.search(r"([\d.]+) times less than raw", outputs[0]).group(1)) > 4


def test_rails_have_the_same_bits_on_all_ranks(two_nodes):
    outputs = "".join(run(two_nodes, EXAMPLES / "rails.py", ranks=2))
    assert len(digests := re.findall(r"parameters (\w+)", outputs)) == 4
    assert len(set(digests)) == 1
    assert float(re.search(r"epoch 3: ([\d.]+) %", outputs).group(1)) > 95
    assert all(float(ratio) > 7 for ratio in re.findall(r"([\d.]+) times less than raw", outputs))


def test_fsdp(two_nodes):
    output = run(two_nodes, EXAMPLES / "fsdp.py")[0]
    assert float(re.search(r"step 60: loss ([\d.]+)", output).group(1)) < 2.7


def test_fsdp_with_compression(two_nodes):
    output = run(two_nodes, EXAMPLES / "fsdp.py", "--compress")[0]
    assert float(re.search(r"step 60: loss ([\d.]+)", output).group(1)) < 2.7
    assert float(re.search(r"([\d.]+) times less than raw", output).group(1)) > 1.8


def test_fsdp_inside_of_nodes_with_compression_between_them(two_nodes):
    output = run(two_nodes, EXAMPLES / "fsdp.py", "--replicas", ranks=2)[0]
    assert float(re.search(r"step 60: loss ([\d.]+)", output).group(1)) < 2.7
    assert float(re.search(r"([\d.]+) times less than raw", output).group(1)) > 3


@pytest.mark.skipif(not has_python_backends(), reason="the entry point came with PyTorch 2.14")
def test_no_import_is_needed_where_tern_is_installed(two_nodes, tmp_path):
    """As pip would leave it: a folder that says which backend the package has."""
    installed = tmp_path / "tern-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tern\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "[torch.distributed.backends]\ntern = tern.torch.registration:register\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('tern')\n"
        "x = torch.ones(1)\n"
        "dist.all_reduce(x)\n"
        "print('the sum is', x.item())\n"
        "dist.destroy_process_group()\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for output in run(two_nodes, program, PYTHONPATH=path):
        assert "the sum is 2.0" in output
