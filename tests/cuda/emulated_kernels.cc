#include "tests/cuda/emulated_kernels.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>

#include "codec/device/element_decode.cuh"
#include "codec/device/element_encode.cuh"
#include "codec/device/emulation/launch.h"
#include "codec/device/emulation/memory.h"
#include "codec/device/threelc_decode.cuh"
#include "codec/device/threelc_encode.cuh"

namespace tern::cuda {
namespace {

using namespace codec::device;

using Kernel = std::function<void()>;
using Bind = Kernel (*)(void** parameters);

// A kernel whose arguments are these, copied when it is launched.
template <typename First, typename Chunk, void (*run)(const First&, const Chunk*)>
Kernel bind(void** parameters) {
  const First first = *static_cast<const First*>(parameters[0]);
  const Chunk* const chunks = *static_cast<const Chunk* const*>(parameters[1]);
  return [first, chunks] { run(first, chunks); };
}

template <bool kOnChip>
constexpr Bind threelc() {
  return bind<ThreelcStage, EncodeChunk, threelc_encode<kOnChip>>;
}
template <typename Format>
constexpr Bind encoder() {
  return bind<ElementStage, EncodeChunk, element_encode<Format>>;
}
template <typename Format>
constexpr Bind decoder() {
  return bind<DecodeRoom, DecodeChunk, element_decode<Format, false>>;
}

const std::map<std::string, Bind>& kernels() {
  static const std::map<std::string, Bind> kAll = {
      {"tern_threelc_encode", threelc<true>()},
      {"tern_threelc_encode_twice", threelc<false>()},
      {"tern_threelc_decode", bind<DecodeRoom, DecodeChunk, threelc_decode<false>>},
      {"tern_int8_encode", encoder<IntegerFormat<8>>()},
      {"tern_int8_decode", decoder<IntegerFormat<8>>()},
      {"tern_int4_encode", encoder<IntegerFormat<4>>()},
      {"tern_int4_decode", decoder<IntegerFormat<4>>()},
      {"tern_fp8_e4m3_encode", encoder<Fp8E4M3>()},
      {"tern_fp8_e4m3_decode", decoder<Fp8E4M3>()},
      {"tern_fp8_e5m2_encode", encoder<Fp8E5M2>()},
      {"tern_fp8_e5m2_decode", decoder<Fp8E5M2>()},
      {"tern_bf16_encode", encoder<Bf16Format>()},
      {"tern_bf16_decode", decoder<Bf16Format>()},
  };
  return kAll;
}

void run(gpu::FakeCuda& fake, const gpu::FakeCuda::KernelCall& call, const Kernel& kernel) {
  static std::mutex one_launch_at_a_time;
  static std::uint64_t number = 0;
  const std::lock_guard lock(one_launch_at_a_time);
  std::vector<std::unique_ptr<emulation::Allocation>> memory;
  for (const std::span<std::byte> range : fake.memory()) {
    memory.push_back(std::make_unique<emulation::Allocation>(range.data(), range.size(), 1, true));
  }
  emulation::LaunchOptions options;
  ++number;
  options.schedule = {static_cast<emulation::Schedule::Order>(number % 4), number};
  const auto report =
      emulation::launch({call.config.grid[0], call.config.block[0]}, options, kernel);
  EXPECT_EQ(report.finding, "") << call.kernel;
  EXPECT_LE(report.shared_bytes, call.config.shared_bytes) << call.kernel;
}

}  // namespace

gpu::FakeCuda::Runner emulated_kernels(gpu::FakeCuda& fake) {
  return [&fake](const gpu::FakeCuda::KernelCall& call) -> std::function<void()> {
    const auto found = kernels().find(call.kernel);
    if (found == kernels().end()) {
      ADD_FAILURE() << "no emulation of " << call.kernel;
      return [] {};
    }
    gpu::FakeCuda::KernelCall kept = call;
    kept.parameters = nullptr;
    return [&fake, kept, kernel = found->second(call.parameters)] { run(fake, kept, kernel); };
  };
}

}  // namespace tern::cuda
