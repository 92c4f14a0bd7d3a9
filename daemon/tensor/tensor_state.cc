#include "daemon/tensor/tensor_state.h"

namespace tern::daemon {

TensorTotals total(const TensorState& state) noexcept {
  TensorTotals totals;
  double input = 0, residual = 0;
  for (const TensorLane& lane : state.lanes) {
    const TensorCounts& counts = lane.counts;
    const auto read = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    // Every lane that has chunks of the tensor sees every op. One that is behind knows less.
    if (const std::uint64_t ops = read(counts.ops); ops > totals.ops) {
      totals.ops = ops;
      totals.kind = read(counts.kind);
    }
    totals.bytes_raw += read(counts.bytes_raw);
    totals.bytes_sent += read(counts.bytes_sent);
    totals.encode_ns += read(counts.encode_ns);
    totals.queue_ns += read(counts.queue_ns);
    totals.wire_ns += read(counts.wire_ns);
    totals.decode_ns += read(counts.decode_ns);
    totals.wait_ns += read(counts.wait_ns);
    totals.raw_fallbacks += read(counts.raw_fallbacks);
    totals.resets += read(counts.resets);
    input += read(counts.input_energy);
    residual += read(counts.residual_energy);
  }
  totals.resets += state.resets.load(std::memory_order_relaxed);
  totals.input_energy = input;
  totals.residual_energy = residual;
  return totals;
}

}  // namespace tern::daemon
