#include "ctl/gpu_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "base/printable.h"
#include "ctl/fields.h"

namespace tern::ctl {
namespace {

constexpr const char* kGpu = "GPU";
// The first branch of drivers that has CUDA 12.0, as gpu::Driver::kOldestVersion asks.
constexpr int kOldestBranch = 525;

using nlohmann::json;

bool has_not_pinned(const json& device) {
  const std::string failures = text_field(device, "pinning_failures");
  return failures != "-" && failures != "0";
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int branch_of(const std::string& version) {
  int branch = 0;
  (void)std::from_chars(version.data(), version.data() + version.size(), branch);
  return branch;
}

}  // namespace

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023". The
// name before it has digits too, and no point between them.
std::string nvidia_version(std::string_view line) {
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const bool is_version =
        !word.empty() && is_digit(word.front()) && is_digit(word.back()) &&
        word.find('.') != std::string_view::npos &&
        std::all_of(word.begin(), word.end(), [](char c) { return is_digit(c) || c == '.'; });
    if (is_version) return std::string(word);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return "";
}

std::vector<Finding> examine_gpu(const Machine& machine) {
  const std::string& version = machine.nvidia_driver;
  if (version.empty()) return {};
  const std::string driver = "the NVIDIA driver " + printable(version);
  if (branch_of(version) < kOldestBranch) {
    return {
        {Grade::advice, kGpu, driver + " is older than CUDA 12.0, which libtern_cuda needs",
         fmt::format("update the driver to {} or newer; programs without libtern_cuda need none",
                     kOldestBranch)}};
  }
  return {{Grade::good, kGpu, driver + ": libtern_cuda may use it", ""}};
}

// One for each client: its devices are in one process, under one limit.
std::vector<Finding> examine_devices(const json& clients) {
  std::vector<Finding> findings;
  for (const json& client : rows_of(clients)) {
    const json& devices = rows_of(client, "devices");
    const auto found = std::find_if(devices.begin(), devices.end(), has_not_pinned);
    if (found == devices.end()) continue;
    findings.push_back(
        {Grade::advice, kGpu,
         fmt::format("client {} (pid {}, job {}) could not pin memory for its device {}: {}",
                     text_field(client, "id"), text_field(client, "pid"), text_field(client, "job"),
                     text_field(*found, "device"), text_field(*found, "pinning_problem")),
         "let that program lock more memory (`ulimit -l unlimited`, LimitMEMLOCK=infinity in its "
         "unit), give its control group more (memory.max), or have fewer tensors on the GPU"});
  }
  return findings;
}

}  // namespace tern::ctl
