#pragma once

// What makes a simulated run hard on the tuner: a world that its model does not assume, and nodes
// that measure badly.

#include <array>
#include <cstddef>
#include <cstdint>

#include "bench/tuner_world.h"

namespace tern::bench {

// How the nodes of a run measure.
struct Instruments {
  // Of a lane's working time, for measurements in the shadow; and the time between two of them.
  double shadow_share = 0.003;
  double sample_every_ns = 20e6;
  // A rate is read before the acknowledgements of so many last ops are in.
  std::size_t late_ops = 0;
  // A node's clock shows so many times the true length of what it measures.
  std::array<double, 2> clock = {1.0, 1.0};
  // One reading of an op's time in so many is off by as many nanoseconds; 0: none.
  double leap_every = 0.0;
  double leap_ns = 50e6;
};

// Lanes and codecs that cost other than the model assumes and the shadow measures.
Oddity hostile_world(Oddity oddity, std::size_t candidates, std::uint64_t seed);
Instruments hostile_instruments(std::uint64_t seed);

}  // namespace tern::bench
