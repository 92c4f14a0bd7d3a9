#include "codec/kernel_target.h"

#include <hwy/targets.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "codec/kernels.h"
#include "codec/kernels_highway.h"

namespace tern::codec {
namespace {

struct Target {
  std::string_view name;
  const ThreelcKernels* threelc = nullptr;
  const ConvertKernels* convert = nullptr;
};

constexpr std::size_t kMostTargets = 8;

// Filled once, before any kernel can run, and constant from then on.
class Registry {
 public:
  static const Registry& get() noexcept {
    static const Registry registry;
    return registry;
  }

  std::span<const std::string_view> names() const noexcept { return {names_.data(), count_}; }
  const Target& at(std::size_t i) const noexcept { return targets_[i]; }
  const Target* find(std::string_view name) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (names_[i] == name) return &targets_[i];
    }
    return nullptr;
  }

 private:
  Registry() noexcept {
    const std::int64_t supported = hwy::SupportedTargets();
#if HWY_ARCH_X86
    if ((supported & HWY_AVX3) != 0 && threelc_avx512() != nullptr) {
      add({"avx512_vbmi2", threelc_avx512(), convert_highway(HWY_AVX3)});
    }
    add_highway(supported, HWY_AVX3, "avx512");
    add_highway(supported, HWY_AVX2, "avx2");
    add_highway(supported, HWY_SSE4, "sse4");
#elif HWY_ARCH_ARM_A64
    add_highway(supported, HWY_NEON, "neon");
#else
    static_cast<void>(supported);
#endif
    add({"scalar", &kThreelcScalar, &kConvertScalar});
  }

  void add_highway(std::int64_t supported, std::int64_t bit, std::string_view name) noexcept {
    if ((supported & bit) == 0) return;
    const Target target{name, threelc_highway(bit), convert_highway(bit)};
    if (target.threelc != nullptr && target.convert != nullptr) add(target);
  }

  void add(const Target& target) noexcept {
    targets_[count_] = target;
    names_[count_] = target.name;
    ++count_;
  }

  std::array<Target, kMostTargets> targets_{};
  std::array<std::string_view, kMostTargets> names_{};
  std::size_t count_ = 0;
};

// Null until somebody forces a target; the pointer is all that changes, so relaxed order will do.
std::atomic<const Target*> forced_target{nullptr};

const Target& active() noexcept {
  const Target* const forced = forced_target.load(std::memory_order_relaxed);
  return forced != nullptr ? *forced : Registry::get().at(0);
}

}  // namespace

std::span<const std::string_view> supported_targets() noexcept { return Registry::get().names(); }

std::string_view kernel_target_name() noexcept { return active().name; }

bool force_target(std::string_view name) noexcept {
  const Target* const target = name == "auto" ? nullptr : Registry::get().find(name);
  if (target == nullptr && name != "auto") return false;
  forced_target.store(target, std::memory_order_relaxed);
  return true;
}

const ThreelcKernels& threelc_kernels() noexcept { return *active().threelc; }
const ConvertKernels& convert_kernels() noexcept { return *active().convert; }

}  // namespace tern::codec
