#include "cuda/device_use.h"

namespace tern::cuda {

void DeviceUse::hold(const HeldBytes& bytes) {
  const std::lock_guard lock(mutex_);
  stats_.device_bytes += bytes.device;
  stats_.pinned_bytes += bytes.pinned;
  ++changes_;
}

void DeviceUse::let_go(const HeldBytes& bytes) {
  const std::lock_guard lock(mutex_);
  stats_.device_bytes -= bytes.device;
  stats_.pinned_bytes -= bytes.pinned;
  ++changes_;
}

void DeviceUse::pinning_failed(const std::string& why) {
  const std::lock_guard lock(mutex_);
  ++stats_.pinning_failures;
  pinning_problem_ = why;
  ++changes_;
}

// The operation's end is the change.
void DeviceUse::encoded(std::uint64_t ns) {
  if (ns == 0) return;
  const std::lock_guard lock(mutex_);
  stats_.encode_ns += ns;
  encodes_ = {encodes_.count + 1, ns};
}

void DeviceUse::decoded(std::uint64_t ns) {
  if (ns == 0) return;
  const std::lock_guard lock(mutex_);
  stats_.decode_ns += ns;
  decodes_ = {decodes_.count + 1, ns};
}

void DeviceUse::went_raw(std::uint64_t chunks) {
  const std::lock_guard lock(mutex_);
  stats_.raw_fallbacks += chunks;
}

void DeviceUse::decoded_by_processor(std::uint64_t blocks) {
  const std::lock_guard lock(mutex_);
  stats_.processor_blocks += blocks;
}

void DeviceUse::ended(bool has_succeeded) {
  const std::lock_guard lock(mutex_);
  ++stats_.operations;
  stats_.failures += has_succeeded ? 0 : 1;
  ++changes_;
}

tern_cuda_stats DeviceUse::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

DeviceUse::Report DeviceUse::report() const {
  const std::lock_guard lock(mutex_);
  Report report{TERN_DEVICE_REPORT_INIT, pinning_problem_};
  tern_device_report& numbers = report.numbers;
  numbers.device_bytes = stats_.device_bytes;
  numbers.pinned_bytes = stats_.pinned_bytes;
  numbers.pinning_failures = stats_.pinning_failures;
  numbers.operations = stats_.operations;
  numbers.failures = stats_.failures;
  numbers.encodes = encodes_.count;
  numbers.encode_ns = stats_.encode_ns;
  numbers.last_encode_ns = encodes_.last_ns;
  numbers.decodes = decodes_.count;
  numbers.decode_ns = stats_.decode_ns;
  numbers.last_decode_ns = decodes_.last_ns;
  return report;
}

std::uint64_t DeviceUse::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace tern::cuda
