#pragma once

#include <cstdint>
#include <memory>

#include "bench/collective_runner.h"

namespace tern::bench {

// A rank of Open MPI's world, which mpirun has started. Of the program tern-bench-mpi, which is
// built with Debian's libopenmpi-dev; elsewhere available is false and the constructor throws.
class MpiNode {
 public:
  struct Options {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::uint64_t max_bytes = 0;  // of input and output together
  };

  static bool available();

  // One in a process: MPI begins with it and ends with it.
  explicit MpiNode(const Options& options);
  ~MpiNode();
  MpiNode(const MpiNode&) = delete;
  MpiNode& operator=(const MpiNode&) = delete;

  // On ordinary memory, one at a time. REQUIRES: input and output together are no larger than
  // max_bytes, and the operation has fewer than 2^31 elements.
  std::unique_ptr<CollectiveRunner> runner(const CollectiveShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tern::bench
