#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/collective_runner.h"
#include "bench/contestant.h"

namespace tern::bench {

// Gloo's algorithms for an all_reduce, of which none is the fastest everywhere.
enum class GlooAllReduce : std::uint8_t { ring, bcube, halving_doubling };

// A rank's links to all others by Gloo over TCP. Built with Debian's libgloo-dev; without it
// available is false and the constructor throws.
class GlooNode {
 public:
  struct Options {
    std::string address;  // of this node, to listen on
    std::string folder;   // where the ranks find each other; one that no earlier run has used
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::uint64_t max_bytes = 0;  // of a tensor
  };

  static bool available();

  explicit GlooNode(const Options& options);
  ~GlooNode();

  // The ring algorithm, in place, on ordinary memory. One tensor at a time is measured.
  std::unique_ptr<Contestant> contestant(std::size_t count);
  // Null: Gloo has no such operation for groups of this size. REQUIRES: input and output together
  // are no larger than max_bytes. The algorithm is that of an all_reduce.
  std::unique_ptr<CollectiveRunner> runner(const CollectiveShape& shape,
                                           GlooAllReduce algorithm = GlooAllReduce::ring);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tern::bench
