#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/collective_runner.h"
#include "bench/contestant.h"
#include "client_lib/include/tern/tern.hpp"

namespace tern::bench {

// Where a contestant's values lie. `blocks`: outside the arena, where libtern_blocks encodes and
// decodes them.
enum class Memory : std::uint8_t { arena, outside, region, blocks };

// A rank's connection to the daemon of its node, shared by the contestants of all recipes.
class TernNode {
 public:
  struct Options {
    std::string socket;         // empty: the default of libtern
    std::string group_id_file;  // rank 0 writes it, the others wait for it
    std::string job = "bench";
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::uint64_t max_bytes = 0;    // of a tensor
    bool copies = false;            // some contestant's values lie outside the arena
    std::size_t block_tensors = 0;  // contestants with blocks that there are at once
  };

  explicit TernNode(const Options& options);

  // In place; one tensor at a time is measured. REQUIRES: options.copies for values outside.
  std::unique_ptr<Contestant> contestant(const std::string& recipe, std::size_t count,
                                         Memory memory = Memory::arena);
  // REQUIRES: input and output together are no larger than max_bytes.
  std::unique_ptr<CollectiveRunner> runner(const CollectiveShape& shape);
  Group& group() { return group_; }
  std::span<float> memory() { return memory_; }  // max_bytes of the arena

 private:
  Client client_;
  Group group_;
  std::span<float> memory_;
  std::vector<float> outside_;
  std::span<float> region_;
};

}  // namespace tern::bench
