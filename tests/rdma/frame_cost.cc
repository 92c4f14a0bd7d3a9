// rdma_frame_cost FRAMES [no-crc]: sends so many frames of 256 KiB over the mock.
// tools/rdma_frame_cost.py counts the instructions.

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/rdma/busy_links.h"

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: rdma_frame_cost FRAMES [no-crc]\n");
    return 2;
  }
  const auto frames = std::strtoull(arguments[1], nullptr, 10);
  tern::rdma::BusyLinks links(count < 3 || std::string_view(arguments[2]) != "no-crc");
  if (!links.is_open()) return 1;
  links.exchange(frames);
  return links.sink_b.received == frames ? 0 : 1;
}
