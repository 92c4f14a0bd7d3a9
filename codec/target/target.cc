#include "codec/target/target.h"

#include <hwy/targets.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace tern::codec::target {
namespace {

constexpr std::size_t kMostTargets = 8;

#if HWY_ARCH_X86
bool has_vbmi2() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vbmi") != 0 &&
         __builtin_cpu_supports("avx512vbmi2") != 0;
}
#endif

// Filled once, before any kernel can run, and constant from then on.
class Registry {
 public:
  static const Registry& get() noexcept {
    static const Registry kRegistry;
    return kRegistry;
  }

  std::span<const std::string_view> names() const noexcept { return {names_.data(), count_}; }
  const Active& at(std::size_t i) const noexcept { return targets_[i]; }
  const Active* find(std::string_view name) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (names_[i] == name) return &targets_[i];
    }
    return nullptr;
  }
  std::string_view name_of(const Active* target) const noexcept {
    return names_[static_cast<std::size_t>(target - targets_.data())];
  }

 private:
  Registry() noexcept {
    const std::int64_t supported = hwy::SupportedTargets();
#if HWY_ARCH_X86
    if ((supported & HWY_AVX3) != 0 && has_vbmi2()) add("avx512_vbmi2", {HWY_AVX3, true});
    if ((supported & HWY_AVX3) != 0) add("avx512", {HWY_AVX3, false});
    if ((supported & HWY_AVX2) != 0) add("avx2", {HWY_AVX2, false});
#ifndef TERN_FEW_SIMD_TARGETS
    if ((supported & HWY_SSE4) != 0) add("sse4", {HWY_SSE4, false});
#endif
#elif HWY_ARCH_ARM_A64
    if ((supported & HWY_NEON) != 0) add("neon", {HWY_NEON, false});
#else
    static_cast<void>(supported);
#endif
    add("scalar", {});
  }

  void add(std::string_view name, const Active& target) noexcept {
    targets_[count_] = target;
    names_[count_] = name;
    ++count_;
  }

  std::array<Active, kMostTargets> targets_{};
  std::array<std::string_view, kMostTargets> names_{};
  std::size_t count_ = 0;
};

// Null until somebody forces a target; the pointer is all that changes, so relaxed order will do.
std::atomic<const Active*> forced_target{nullptr};

const Active& current() noexcept {
  const Active* const forced = forced_target.load(std::memory_order_relaxed);
  return forced != nullptr ? *forced : Registry::get().at(0);
}

}  // namespace

std::span<const std::string_view> supported() noexcept { return Registry::get().names(); }

std::span<const std::string_view> left_out() noexcept {
#ifdef TERN_FEW_SIMD_TARGETS
  static constexpr std::string_view kLeftOut[] = {"sse4"};
  return kLeftOut;
#else
  return {};
#endif
}

std::string_view name() noexcept { return Registry::get().name_of(&current()); }

bool force(std::string_view name) noexcept {
  const Active* const target = name == "auto" ? nullptr : Registry::get().find(name);
  if (target == nullptr && name != "auto") return false;
  forced_target.store(target, std::memory_order_relaxed);
  return true;
}

Active active() noexcept { return current(); }

}  // namespace tern::codec::target
