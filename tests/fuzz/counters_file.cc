// A counters file that somebody else has written.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "counters/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto snapshot = tern::counters::parse_counters(std::as_bytes(std::span(data, size)));
  if (!snapshot) return 0;
  for (const auto& counter : snapshot->counters) {
    if (counter.instances.empty() || counter.name.size() > 48) std::abort();
  }
  return 0;
}
