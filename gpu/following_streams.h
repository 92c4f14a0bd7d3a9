#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/streams.h"

// Streams of Tern's, each for the work behind one stream of the program. On one stream for all,
// work behind a stream that waits for a word would stand before that of another stream: two nodes
// that enqueue in different orders would wait for each other.
namespace tern::gpu {

class FollowingStreams {
 public:
  static constexpr std::size_t kMost = 32;

  // Requires: `driver` outlives it.
  explicit FollowingStreams(const Driver& driver) : driver_(driver) { followers_.reserve(kMost); }
  FollowingStreams(const FollowingStreams&) = delete;
  FollowingStreams& operator=(const FollowingStreams&) = delete;

  // That of the program's stream. A stream of Tern's that has nothing to do may get another one to
  // follow. Valid until this is destroyed. Errc::would_block: all have something to do, and none of
  // them is for the program's stream. Thread: one at a time.
  Result<const OwnStream*> behind(Stream program);

 private:
  struct Follower {
    Stream program;
    std::unique_ptr<OwnStream> own;
  };

  const Driver& driver_;
  std::vector<Follower> followers_;
};

}  // namespace tern::gpu
