#pragma once

// The reader's side of the counters file. Needs nothing of the daemon, and believes nothing that is
// in the file before it has looked.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "counters/layout.h"

namespace tern::counters {

struct Counter {
  std::string name;
  std::string unit;
  std::string help;
  Kind kind = Kind::counter;
  std::vector<std::uint64_t> instances;  // a lane each, or one

  std::uint64_t value() const noexcept;
};

struct Snapshot {
  std::uint64_t pid = 0;
  std::uint64_t started_ns = 0;
  std::uint64_t written_ns = 0;
  std::string node_id;
  std::string software;
  bool alive = false;  // its daemon runs; else these are the last words of one that died
  std::vector<Counter> counters;
};

// Any bytes are welcome. `alive` is left false.
Result<Snapshot> parse_counters(std::span<const std::byte> bytes);

// Copies the file and parses the copy: whoever may write it can change or shorten it meanwhile.
Result<Snapshot> read_counters(const std::string& path);

}  // namespace tern::counters
