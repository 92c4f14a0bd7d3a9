#include "codec/pay_back.h"

#include <cmath>

#include "base/half.h"
#include "codec/codec.h"

namespace tern::codec {

bool pay_back(const Owed& owed, std::span<float> values) noexcept {
  if (owed.residual == nullptr) return false;
  const ScanResult scan = scan_max(values, owed.residual, owed.state_scale);
  const float largest = round_to_dtype(owed.carried, scan.max);
  if (scan.nonfinite || !std::isfinite(round_to_dtype(owed.delivered, largest * owed.share))) {
    return false;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float all = values[i] + owed.state_scale * owed.residual[i];
    values[i] = round_to_dtype(owed.carried, all);
    owed.residual[i] = all - values[i];
  }
  return true;
}

}  // namespace tern::codec
