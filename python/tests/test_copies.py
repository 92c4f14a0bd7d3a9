"""What is copied for an operation, counted: every memcpy() and memmove() of a page or more.

The library's copies of 2 MiB and more go past the caches, by no such call. That it makes none of
what lies in the arena is tested in C++ (tests/client_lib/arena_memory_test.cc); that Python makes
none either, for any size, is tested here.
"""

import os
import subprocess
import sys

SMALL_BYTES = (7 << 16) * 4  # 1.75 MiB

# In place of the C library's, in a process of its own.
COUNTER = """
#include <stddef.h>

static unsigned long long copied;

unsigned long long copied_bytes(void) { return __atomic_load_n(&copied, __ATOMIC_SEQ_CST); }

void* memmove(void* to, const void* from, size_t bytes) {
  char* out = to;
  const char* in = from;
  if (bytes >= 4096) __atomic_add_fetch(&copied, bytes, __ATOMIC_SEQ_CST);
  if (out <= in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    for (size_t i = bytes; i-- > 0;) out[i] = in[i];
  }
  return to;
}

void* memcpy(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
"""

# Two ranks, each of a daemon of its own, reduce 64 and 1.75 MiB in the arena, then 1.75 MiB outside
# of it.
PROGRAM = """
import ctypes, sys, threading
import numpy as np, tern

copied = ctypes.CDLL(None).copied_bytes
copied.restype = ctypes.c_uint64
clients = [tern.Client(socket, arena_bytes=160 << 20) for socket in sys.argv[1:]]
group_id = clients[0].mint()
met = threading.Barrier(2)
counts = {}

def run(rank):
    client = clients[rank]
    with client.join(group_id, rank, 2) as group:
        arrays = {"large": client.empty(16 << 20, np.float32),
                  "small": client.empty(7 << 16, np.float32),
                  "elsewhere": np.empty(7 << 16, np.float32)}
        for name, x in arrays.items():
            x[:] = rank + 1
            met.wait()
            before = copied()
            met.wait()
            assert group.all_reduce(x).wait()[-1] == 3
            met.wait()
            counts[name] = copied() - before

ranks = [threading.Thread(target=run, args=[rank]) for rank in range(2)]
for rank in ranks: rank.start()
for rank in ranks: rank.join()
print(counts["large"], counts["small"], counts["elsewhere"])
"""


def test_what_lies_in_the_arena_moves_without_a_copy(two_nodes, tmp_path):
    source, counter = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-fno-builtin",
                    "-fno-tree-loop-distribute-patterns", source, "-o", counter], check=True)
    run = subprocess.run([sys.executable, "-c", PROGRAM, *(node.socket for node in two_nodes)],
                         env={**os.environ, "LD_PRELOAD": str(counter)}, text=True,
                         capture_output=True)
    assert run.returncode == 0, run.stderr
    large, small, elsewhere = map(int, run.stdout.split())
    # In and out again, of two ranks.
    assert elsewhere >= 4 * SMALL_BYTES
    assert (small, large) == (0, 0)
