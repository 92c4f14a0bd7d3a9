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
  // In what lasts, a gain counts for no more than a great one, and a loss for no more than this.
  double great_loss = 0.3;
  double weight = 0.15;         // of an op in what lasts
  double weight_of_raw = 0.15;  // the same for raw
};

// What others would gain, as shares of the time of what is in use. Below 0 they would lose.
struct Gains {
  double best = 0.0;  // of what is not in use, the best
  bool best_is_raw = false;
  double raw = 0.0;  // 0 if it is in use
};

enum class Move : std::uint8_t { stay, to_best, to_raw };

// Predictions carry the noise of what they are made of. Beside each other lie recipes that are as
// fast as each other within it, and to change among them gains nothing. A change of the world is
// another matter: then the newest that is known is the best that is known. Back to raw it goes
// whenever that lasts, however short the time: to leave raw was wrong then.
class Hysteresis {
 public:
  explicit Hysteresis(const SwitchSettings& settings)
      : settings_(settings), free_for_(settings.first_ops), since_switch_(settings.dwell) {}

  // The link, the load or what is allowed is another from the next op on.
  void change() noexcept { free_for_ = std::max(free_for_, settings_.free_ops); }

  // Once before each op.
  Move next(const Gains& gains) noexcept {
    ++since_switch_;
    const bool free = free_for_ > 0;
    if (free) --free_for_;
    follow(lasting_, gains.best, settings_.weight);
    follow(lasting_raw_, gains.raw, settings_.weight_of_raw);
    great_for_ = gains.best > settings_.great_gain ? great_for_ + 1 : 0;
    const double enough = gains.best_is_raw ? settings_.gain_of_raw : settings_.gain;
    const bool lasts = since_switch_ > settings_.dwell && lasting_ > enough;
    const bool was_wrong = great_for_ >= settings_.great_for;
    if (gains.best > enough && (free || lasts || was_wrong)) return move(Move::to_best);
    const bool raw_lasts = lasting_raw_ > settings_.gain_of_raw;
    return gains.raw > settings_.gain_of_raw && raw_lasts ? move(Move::to_raw) : Move::stay;
  }

  // It is sent otherwise, whatever the gain.
  void switched() noexcept {
    since_switch_ = 0;
    lasting_ = 0.0;
    lasting_raw_ = 0.0;
    great_for_ = 0;
  }

 private:
  void follow(double& lasting, double gain, double weight) const noexcept {
    lasting += weight * (std::clamp(gain, -settings_.great_loss, settings_.great_gain) - lasting);
  }
  Move move(Move to) noexcept {
    switched();
    return to;
  }

  SwitchSettings settings_;
  std::uint32_t free_for_;  // ops
  std::uint32_t since_switch_;
  double lasting_ = 0.0;
  double lasting_raw_ = 0.0;
  std::uint32_t great_for_ = 0;
};

}  // namespace tern::tuner
