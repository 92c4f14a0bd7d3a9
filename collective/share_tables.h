#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tern::collective {

// Where the ranks' shares begin, of each op that has counts. One table for each such op in flight
// is kept for the next, so memory is taken only while their number grows.
class ShareTables {
 public:
  explicit ShareTables(std::uint32_t ranks) : ranks_(ranks) {}

  // The begin of every share, and after them the end of the last. REQUIRES: a count for each rank,
  // whose sum does not overflow.
  const std::uint64_t* take(std::span<const std::uint64_t> counts);
  // Null is ignored.
  void give(const std::uint64_t* begins);
  // Whether the table was made of these.
  bool are(const std::uint64_t* begins, std::span<const std::uint64_t> counts) const noexcept;

 private:
  std::uint32_t ranks_;
  std::vector<std::unique_ptr<std::uint64_t[]>> tables_;
  std::vector<std::uint64_t*> free_;
};

}  // namespace tern::collective
