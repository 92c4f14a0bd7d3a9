#include "tuner/error_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tern::tuner {
namespace {

constexpr double kUsualWeight = 0.1;  // of an op in what is usual
constexpr double kFirstSpread = 0.5;  // until some ops have shown how much lengths vary
constexpr std::uint32_t kMaxDoublings = 6;

double share_of(const LegEnergies& part, std::uint64_t elements) noexcept {
  return static_cast<double>(part.elements) / static_cast<double>(elements);
}

}  // namespace

std::string_view alarm_text(Alarm alarm) noexcept {
  switch (alarm) {
    case Alarm::none:
      return "";
    case Alarm::first_ops:
      return "its first operations are sent with little loss";
    case Alarm::residual_growth:
      return "the residual has outgrown the gradient";
    case Alarm::nonfinite:
      return "a value was not finite";
    case Alarm::norm_change:
      return "the gradient's length has changed suddenly";
  }
  return "";
}

ErrorGuard::ErrorGuard(Level level, Bounds bounds, const GuardSettings& settings)
    : level_(level), bounds_(bounds), settings_(settings) {
  if (settings_.first_ops > 0 && level_ > Level::conservative) {
    cautious_ops_ = settings_.first_ops;
    cautious_level_ = Level::conservative;
    alarm_ = Alarm::first_ops;
  }
}

void ErrorGuard::observe(const ErrorSample& sample) noexcept {
  ++ops_;
  if (cautious_ops_ > 0 && is_heeded_ && --cautious_ops_ == 0) alarm_ = Alarm::none;
  // Energies are summed as f32. What is usual must not learn from one that has overflowed.
  const bool is_known = std::isfinite(sample.energy()) && std::isfinite(sample.residual_energy());
  if (sample.nonfinite || !is_known) return raise(Alarm::nonfinite);
  if (!(sample.energy() > 0.0)) return;
  observe(sample.contributions, contributions_);
  observe(sample.results, results_);
  residual_ratio_ = std::max(contributions_.residual_ratio, results_.residual_ratio);
  if (contributions_.sudden || results_.sudden) return raise(Alarm::norm_change);
  // What an op owes is owed by the recipe it had; a safer one pays it back in the next op.
  if (residual_ratio_ > bounds_.residual) raise(Alarm::residual_growth);
}

// By leg, because sums of many ranks are longer than what one contributes, and against what is
// usual, because small batches have gradients whose lengths differ by much from step to step: one
// that happens to fit the weights is short, which is no new phase, nor is what is owed too much for
// it.
void ErrorGuard::observe(const LegEnergies& part, Usual& usual) const noexcept {
  usual.sudden = false;
  usual.residual_ratio = 0.0;
  if (!(part.energy > 0.0)) return;
  const double length = 0.5 * std::log(part.energy);
  if (part.elements != usual.elements) {
    // Other chunks are encoded than before: their length is no news.
    const double others =
        usual.elements == 0 ? part.energy : usual.energy * share_of(part, usual.elements);
    usual = {part.elements, others, length, usual.elements == 0 ? kFirstSpread : usual.spread};
  } else {
    const double distance = std::abs(length - usual.length);
    const bool far =
        distance > std::max(std::log(settings_.norm_change), settings_.norm_spreads * usual.spread);
    const bool is_short = far && length < usual.length;
    usual.short_ops = is_short ? usual.short_ops + 1 : 0;
    usual.sudden = far && (!is_short || usual.short_ops >= settings_.norm_short_ops);
    if (!far || usual.sudden) {
      // After a jump the new length is the usual one.
      const double weight = usual.sudden ? 1.0 : kUsualWeight;
      usual.length += weight * (length - usual.length);
      usual.energy += weight * (part.energy - usual.energy);
      usual.spread += kUsualWeight * (distance - usual.spread);
    }
  }
  usual.residual_ratio = std::sqrt(part.residual_energy / std::max(usual.energy, part.energy));
}

void ErrorGuard::raise(Alarm alarm) noexcept {
  if (!std::exchange(is_heeded_, false)) return;
  ++alarms_;
  if (level_ == Level::lossless) return;
  // A second alarm while the first still holds goes a rung further down.
  cautious_level_ = safer(level());
  cautious_ops_ = std::max(settings_.caution_ops, std::uint64_t{1});
  if (alarm == Alarm::residual_growth) {
    // A recipe that owes too much will do so again: it is tried ever more rarely.
    cautious_ops_ <<= std::min(growths_, kMaxDoublings);
    ++growths_;
  }
  alarm_ = alarm;
}

Bounds ErrorGuard::bounds() const noexcept {
  if (cautious_ops_ == 0) return bounds_;
  const Bounds cautious = bounds_of(cautious_level_);
  return {std::min(bounds_.loss, cautious.loss), std::min(bounds_.residual, cautious.residual)};
}

Alarm ErrorGuard::alarm() const noexcept { return cautious_ops_ > 0 ? alarm_ : Alarm::none; }

}  // namespace tern::tuner
