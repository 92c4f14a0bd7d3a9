#include "ctl/gpu_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/printable.h"

namespace tern::ctl {
namespace {

constexpr const char* kGpu = "GPU";
// The first branch of drivers that has CUDA 12.0, as gpu::Driver::kOldestVersion asks.
constexpr int kOldestBranch = 525;

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

}  // namespace tern::ctl
