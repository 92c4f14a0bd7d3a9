#pragma once

// Watches one tensor for signs that the loss harms it, and says which level it may have at present.

#include <cstdint>
#include <string_view>

#include "tuner/level.h"

namespace tern::tuner {

struct GuardSettings {
  std::uint64_t first_ops = 10;      // a tensor's first ops go no further than `conservative`
  std::uint64_t caution_ops = 64;    // an alarm holds for so long
  double norm_change = 4.0;          // so many times longer or shorter than usual is sudden, or
  double norm_spreads = 6.0;         // so many mean distances, where lengths vary more by nature
  std::uint32_t norm_short_ops = 4;  // a shorter one is a change when it lasts for so many
};

enum class Alarm : std::uint8_t { none, first_ops, residual_growth, nonfinite, norm_change };
std::string_view alarm_text(Alarm alarm) noexcept;

// Of one leg of an op, over what of it was encoded on this node.
struct LegEnergies {
  // Sums of squares: of what came in, and of the residual that is left.
  double energy = 0.0;
  double residual_energy = 0.0;
  std::uint64_t elements = 0;
};

struct ErrorSample {
  LegEnergies contributions, results;
  bool nonfinite = false;

  double energy() const noexcept { return contributions.energy + results.energy; }
  double residual_energy() const noexcept {
    return contributions.residual_energy + results.residual_energy;
  }
};

class ErrorGuard {
 public:
  ErrorGuard(Level level, Bounds bounds, const GuardSettings& settings);

  void set_bounds(Level level, Bounds bounds) noexcept {
    level_ = level;
    bounds_ = bounds;
  }

  // After each op. Between two decisions all signs are one alarm: no op was decided on since the
  // first. An alarm holds for ops that end after it was decided on.
  void observe(const ErrorSample& sample) noexcept;
  // Before each decision on what the next ops may lose.
  void heed() noexcept { is_heeded_ = true; }

  // What the next op may lose.
  Bounds bounds() const noexcept;
  Level level() const noexcept {
    return cautious_ops_ > 0 && cautious_level_ < level_ ? cautious_level_ : level_;
  }
  Alarm alarm() const noexcept;  // why it is not the tensor's own level
  std::uint64_t alarms() const noexcept { return alarms_; }
  double residual_ratio() const noexcept { return residual_ratio_; }
  std::uint64_t ops() const noexcept { return ops_; }

 private:
  void raise(Alarm alarm) noexcept;
  // Running means of what a leg has encoded.
  struct Usual {
    std::uint64_t elements = 0;
    double energy = 0.0;
    double length = 0.0;  // its logarithm, and the distance from that
    double spread = 0.0;
    std::uint32_t short_ops = 0;  // in a row
    bool sudden = false;          // the last one
    double residual_ratio = 0.0;
  };
  void observe(const LegEnergies& part, Usual& usual) const noexcept;

  Level level_;
  Bounds bounds_;
  GuardSettings settings_;
  std::uint64_t ops_ = 0;
  std::uint64_t cautious_ops_ = 0;  // still to go
  bool is_heeded_ = true;           // no alarm waits for a decision
  Level cautious_level_ = Level::lossless;
  Alarm alarm_ = Alarm::none;
  std::uint64_t alarms_ = 0;
  std::uint32_t growths_ = 0;
  Usual contributions_, results_;
  double residual_ratio_ = 0.0;  // the larger one of the legs
};

}  // namespace tern::tuner
