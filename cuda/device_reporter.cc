#include "cuda/device_reporter.h"

namespace tern::cuda {

int DeviceReporter::due_in_ms() const {
  if (!has_news()) return -1;
  const std::uint64_t now = clock_.now_ns();
  constexpr std::uint64_t kNsOfMs = 1'000'000;
  return now >= due_ns_ ? 0 : static_cast<int>((due_ns_ - now + kNsOfMs - 1) / kNsOfMs);
}

void DeviceReporter::tell_if_due() {
  if (due_in_ms() == 0) tell_rest();
}

void DeviceReporter::tell_rest() {
  if (!has_news()) return;
  told_ = use_.changes();
  due_ns_ = clock_.now_ns() + kEveryNs;
  DeviceUse::Report report = use_.report();
  report.numbers.device = device_;
  if (!report.pinning_problem.empty()) {
    report.numbers.pinning_problem = report.pinning_problem.c_str();
  }
  is_heard_ = tern_report_device(client_, &report.numbers) == TERN_OK;
}

}  // namespace tern::cuda
