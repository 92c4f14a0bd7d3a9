// Says at the end of the run on which SIMD targets the codecs were tested, and fails if one that
// this processor has is not among them.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "codec_harness.h"

namespace tern::codec {
namespace covered_targets_test {

struct Processor {
  std::string target;
  bool has;
};

// What the processor has, asked in another way than the codecs ask.
std::vector<Processor> processor() {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
  const bool vbmi2 = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("fma");
  const bool sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return {{"avx512_vbmi2", avx512 && vbmi2},
          {"avx512", avx512},
          {"avx2", avx2},
          {"sse4", sse4},
          {"scalar", true}};
#elif defined(__aarch64__)
  return {{"neon", true}, {"scalar", true}};
#else
  return {{"scalar", true}};
#endif
}

bool is_whole_run() {
  return testing::GTEST_FLAG(filter) == "*" && testing::GTEST_FLAG(repeat) == 1 &&
         std::getenv("GTEST_TOTAL_SHARDS") == nullptr;
}

class CoveredTargets : public testing::Environment {
 public:
  void TearDown() override {
    if (!is_whole_run()) return;
    std::vector<std::string> left_out(target::left_out().begin(), target::left_out().end());
    // target_names() leaves out more where a run is abridged.
    const std::vector<std::string> wanted = target_names();
    for (const std::string_view name : target::supported()) {
      if (std::ranges::find(wanted, name) == wanted.end()) left_out.emplace_back(name);
    }
    for (const auto& [name, has] : processor()) {
      if (!has || std::ranges::find(left_out, name) != left_out.end()) continue;
      EXPECT_TRUE(covered_targets().contains(name))
          << "this processor has " << name << ", on which no test has run";
    }
    fmt::print("codecs tested on: {}; left out on purpose: {}\n", fmt::join(covered_targets(), " "),
               left_out.empty() ? "none" : fmt::format("{}", fmt::join(left_out, " ")));
    std::fflush(stdout);
  }
};

const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new CoveredTargets);

}  // namespace covered_targets_test
}  // namespace tern::codec
