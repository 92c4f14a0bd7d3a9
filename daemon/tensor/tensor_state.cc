#include "daemon/tensor/tensor_state.h"

namespace tern::daemon {

TensorTotals total(const TensorState& state) noexcept {
  TensorTotals totals;
  double input = 0, residual = 0;
  for (const auto& lane : state.lanes) {
    const auto read = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    // Every lane that has chunks of the tensor sees every op. One that is behind knows less.
    if (const std::uint64_t ops = read(lane.ops); ops > totals.ops) {
      totals.ops = ops;
      totals.kind = read(lane.kind);
    }
    totals.bytes_raw += read(lane.bytes_raw);
    totals.bytes_sent += read(lane.bytes_sent);
    totals.encode_ns += read(lane.encode_ns);
    totals.queue_ns += read(lane.queue_ns);
    totals.wire_ns += read(lane.wire_ns);
    totals.decode_ns += read(lane.decode_ns);
    totals.wait_ns += read(lane.wait_ns);
    totals.raw_fallbacks += read(lane.raw_fallbacks);
    totals.resets += read(lane.resets);
    input += read(lane.input_energy);
    residual += read(lane.residual_energy);
  }
  totals.resets += state.resets.load(std::memory_order_relaxed);
  totals.input_energy = input;
  totals.residual_energy = residual;
  return totals;
}

}  // namespace tern::daemon
