#pragma once

// When a better prediction is reason enough to send otherwise.

#include <algorithm>
#include <cstdint>

namespace tern::tuner {

struct SwitchSettings {
  double gain = 0.03;            // of an op's time, that another recipe must promise
  double gain_of_raw = 0.02;     // nobody must wait for raw: it is the promise
  std::uint32_t first_ops = 50;  // of a tensor, and ...
  std::uint32_t free_ops = 10;   // ... after each change: what is best now counts at once
  // At other times the world is as it was. There a gain must last, one switch is enough for so many
  // ops, and only a great gain that lasts shows that it was wrong.
  std::uint32_t dwell = 50;
  double great_gain = 0.15;
  std::uint32_t great_for = 3;  // ops in a row
};

// Predictions carry the noise of what they are made of. Beside each other lie recipes that are as
// fast as each other within it, and to change among them gains nothing. A change of the world is
// another matter: then the newest that is known is the best that is known.
class Hysteresis {
 public:
  explicit Hysteresis(const SwitchSettings& settings)
      : settings_(settings), free_for_(settings.first_ops), since_switch_(settings.dwell) {}

  // The link, the load or what is allowed is another from the next op on.
  void change() noexcept { free_for_ = std::max(free_for_, settings_.free_ops); }

  // Once before each op: how much faster the best would be than what is in use, as a share of its
  // time; 0: the best is in use. True: the op is to be sent by the best.
  bool accepts(double gain, bool to_raw) noexcept {
    ++since_switch_;
    const bool free = free_for_ > 0;
    if (free) --free_for_;
    lasting_gain_ += kWeight * (std::min(gain, settings_.great_gain) - lasting_gain_);
    great_for_ = gain > settings_.great_gain ? great_for_ + 1 : 0;
    const double enough = to_raw ? settings_.gain_of_raw : settings_.gain;
    const bool lasts = since_switch_ > settings_.dwell && lasting_gain_ > enough;
    const bool was_wrong = great_for_ >= settings_.great_for;
    if (gain <= enough || !(free || lasts || was_wrong)) return false;
    switched();
    return true;
  }

  // It is sent otherwise, whatever the gain.
  void switched() noexcept {
    since_switch_ = 0;
    lasting_gain_ = 0.0;
    great_for_ = 0;
  }

 private:
  static constexpr double kWeight = 0.15;  // of an op in what lasts

  SwitchSettings settings_;
  std::uint32_t free_for_;  // ops
  std::uint32_t since_switch_;
  double lasting_gain_ = 0.0;
  std::uint32_t great_for_ = 0;
};

}  // namespace tern::tuner
