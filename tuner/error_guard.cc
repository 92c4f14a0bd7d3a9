#include "tuner/error_guard.h"

#include <algorithm>
#include <cmath>

namespace tern::tuner {
namespace {

constexpr double kUsualWeight = 0.1;  // of an op in the usual energy
constexpr std::uint32_t kMaxDoublings = 6;

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
  if (cautious_ops_ > 0 && --cautious_ops_ == 0) alarm_ = Alarm::none;
  if (sample.nonfinite) return raise(Alarm::nonfinite);
  if (!(sample.input_energy > 0.0)) return;
  residual_ratio_ = std::sqrt(sample.residual_energy / sample.input_energy);
  const bool was_usual = usual_energy_ > 0.0;
  const double length_change = was_usual ? std::sqrt(sample.input_energy / usual_energy_) : 1.0;
  const bool sudden =
      length_change > settings_.norm_change || length_change * settings_.norm_change < 1.0;
  // After a jump the new length is the usual one.
  usual_energy_ = sudden || !was_usual
                      ? sample.input_energy
                      : usual_energy_ + kUsualWeight * (sample.input_energy - usual_energy_);
  if (sudden) return raise(Alarm::norm_change);
  // What an op owes is owed by the recipe it had; a safer one pays it back in the next op.
  if (residual_ratio_ > bounds_.residual) raise(Alarm::residual_growth);
}

void ErrorGuard::raise(Alarm alarm) noexcept {
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
