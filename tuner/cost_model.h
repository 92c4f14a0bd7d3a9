#pragma once

// How long an all-reduce would take. A lane encodes, sends, receives and decodes on one thread
// while the wire moves what it has sent before, so an op takes the longer of the lane's work and
// the wire's, plus what cannot overlap: a round trip for each leg and one chunk through all stages.

#include <cstdint>

namespace tern::tuner {

struct OpShape {
  std::uint64_t bytes = 0;  // of the tensor, in its own type
  std::uint64_t chunk_bytes = 256 << 10;
  std::uint64_t eager_bytes = 0;  // raw ops up to this travel in one hop
  std::uint32_t nodes = 2;
  std::uint32_t lanes = 1;
};

// Of a candidate, for each byte of the tensor.
struct CodecCost {
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double wire = 1.0;  // bytes of the block
};

// Of what a lane does beside coding.
struct LaneCost {
  double byte_ns = 0.4;      // for each byte that is sent or received: checksum and the carrier
  double chunk_ns = 4000.0;  // for each block that is sent or received
};

struct Prediction {
  double total_ns = 0.0;
  double work_ns = 0.0;  // of each lane
  double wire_ns = 0.0;
  double fixed_ns = 0.0;  // what overlaps with nothing
};

// Two legs: contributions by `reduce`, results by `broadcast`, the same on all nodes. `rate`: bytes
// per second to the slowest peer, with all peers sending.
Prediction predict(const OpShape& shape, const CodecCost& reduce, const CodecCost& broadcast,
                   const LaneCost& lane, double rate, double round_trip_ns) noexcept;

// A raw op in one hop.
Prediction predict_eager(const OpShape& shape, const CodecCost& raw, const LaneCost& lane,
                         double rate, double round_trip_ns) noexcept;

}  // namespace tern::tuner
