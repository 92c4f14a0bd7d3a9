#include "bench/tuner_hostility.h"

#include <utility>

#include "bench/tuner_draws.h"

namespace tern::bench {
namespace {

// Draws of one thing are not those of another, whatever the seed.
constexpr std::uint64_t kWorld = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kInstruments = 0xc2b2ae3d27d4eb4f;

}  // namespace

Oddity hostile_world(Oddity oddity, std::size_t candidates, std::uint64_t seed) {
  Draws draws(seed ^ kWorld);
  oddity.lane_byte = draws.between(0.5, 2.0);
  oddity.lane_chunk = draws.between(0.5, 2.0);
  const double caches = draws.between(0.8, 1.6);  // of all codecs alike
  oddity.on_lane.clear();
  for (std::size_t i = 0; i < candidates; ++i) {
    oddity.on_lane.push_back(caches * draws.between(0.85, 1.2));
  }
  return oddity;
}

Instruments hostile_instruments(std::uint64_t seed) {
  Draws draws(seed ^ kInstruments);
  Instruments instruments;
  instruments.late_ops = 1;
  for (double& clock : instruments.clock) clock = draws.between(0.9, 1.1);
  instruments.leap_every = 100.0;
  return instruments;
}

}  // namespace tern::bench
