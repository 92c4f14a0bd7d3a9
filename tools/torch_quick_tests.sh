#!/bin/sh
# Tests tern.torch against a build at two ranks: its own tests but for whole jobs, and some of
# PyTorch's own suite. `make test` has this part, `make test-torch` all of it.
#
#   torch_quick_tests.sh [BIN]    BIN: a folder with ternd and ternctl, libtern.so in lib beside it
#                                 (default: build/release/bin)
#
# Status 77 where the environment of tools/torch_env.sh cannot be made.
set -eu
cd "$(dirname "$0")/.."
programs=$(cd "${1:-build/release/bin}" && pwd)
environment=$(tools/torch_env.sh) || exit 77
export TERN_PROGRAMS="$programs" TERN_LIBRARY="$programs/../lib/libtern.so.1" PYTHONPATH="$PWD/python" \
  PYTHONDONTWRITEBYTECODE=1
unset TERN_SOCKET XDG_RUNTIME_DIR
(cd python && "$environment/bin/python" -m pytest -p no:cacheprovider -q tests/torch \
  --ignore tests/torch/test_examples.py --ignore tests/torch/test_restarts.py)
exec "$environment/bin/python" python/tests/torch/pytorch_suite.py --world-size 2 --all-must-pass \
  test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view \
  test_accumulate_gradients_no_sync test_all_gather test_all_gather_coalesced_simple \
  test_all_gather_object_default_pg test_all_reduce_coalesced_max test_all_reduce_sum_async \
  test_barrier test_batch_isend_irecv_gloo_tags test_ddp_logging_data_cpu test_destroy_group \
  test_get_future test_isend_torch_profiler test_monitored_barrier_gloo test_scatter_object_list \
  test_send_recv_any_source_torch_profiler test_sparse_all_reduce_sum test_static_graph_api_cpu
