"""What the library copies, counted: every memcpy() and memmove() of a page or more."""

import os
import subprocess
import sys

MIB = 1 << 20

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

# Two ranks, each of a daemon of its own, reduce what is in the arena, then what is not.
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
        arrays = {"arena": client.empty(16 << 20, np.float32),
                  "elsewhere": np.empty(16 << 20, np.float32)}
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
print(counts["arena"], counts["elsewhere"])
"""


def test_64_mib_of_the_arena_move_without_a_copy(two_nodes, tmp_path):
    source, counter = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-fno-builtin",
                    "-fno-tree-loop-distribute-patterns", source, "-o", counter], check=True)
    run = subprocess.run([sys.executable, "-c", PROGRAM, *(node.socket for node in two_nodes)],
                         env={**os.environ, "LD_PRELOAD": str(counter)}, text=True,
                         capture_output=True)
    assert run.returncode == 0, run.stderr
    arena, elsewhere = map(int, run.stdout.split())
    # In and out again, of two ranks.
    assert elsewhere >= 4 * 64 * MIB
    assert arena == 0
