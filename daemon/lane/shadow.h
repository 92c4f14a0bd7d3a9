#pragma once

// Measures recipes that are not in use. A lane copies a few values of a tensor on their way to the
// wire; one thread of low priority encodes and decodes the copy with every candidate. Its times are
// those of its own execution (CLOCK_THREAD_CPUTIME_ID), so that nobody who interrupts it counts.
// Without a thread, whoever owns it calls do_work(): the simulator, where measuring takes no time.

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "codec/recipe.h"
#include "daemon/tensor/tensor_tuning.h"
#include "tuner/tuner.h"

namespace tern::daemon {

struct ShadowResult {
  std::uint64_t tensor = 0;  // TensorTuning::number; 0: of no tensor
  tuner::SampleMeasurement sample;
};

class Shadow {
 public:
  static constexpr std::uint32_t kSampleElements = 16 << 10;

  // Of a tensor, as an encoder was given it.
  struct Sample {
    std::uint64_t tensor;
    DType dtype;
    std::span<const float> values;
    const float* residual;  // as long as `values`; may be null
    float state_scale;      // which `residual` is multiplied by
  };

  // wake_conductor is called when there are results, by the thread that measures. `stopwatch` takes
  // the times of codecs and outlives the shadow; null: the processor time of that thread.
  Shadow(std::shared_ptr<const CandidateRecipes> recipes, std::uint32_t lanes,
         std::function<void()> wake_conductor, const Clock* stopwatch = nullptr);
  ~Shadow();

  // A thread that calibrates and then does the work there is.
  void start();
  // Measures every candidate on values of a bell curve.
  void calibrate();
  // Measures the samples that wait, and says how many.
  int do_work();

  // ---- The lanes' ----
  bool has_room(std::uint32_t lane) const noexcept;
  // Copies. REQUIRES: has_room(lane).
  void offer(std::uint32_t lane, const Sample& sample) noexcept;

  // ---- The conductor's ----
  bool pop(ShadowResult& result) { return results_->pop(result); }
  // What has been measured so far has taken.
  std::uint64_t cpu_ns() const noexcept { return cpu_ns_.load(std::memory_order_relaxed); }
  // Measurements in whose middle something else needed the core.
  std::uint64_t disturbed() const noexcept { return disturbed_.load(std::memory_order_relaxed); }

 private:
  using Results = boost::lockfree::spsc_queue<ShadowResult, boost::lockfree::capacity<1024>>;
  struct Slot {
    std::atomic<bool> full{false};
    std::uint64_t tensor = 0;
    DType dtype = DType::f32;
    std::vector<float> values;
    std::vector<float> residual;
    std::uint32_t elements = 0;
  };
  struct Bench;  // what measuring needs of memory

  void run();
  void measure(const Slot& slot);
  bool measure_one(const Slot& slot, tuner::CandidateIndex candidate, double energy,
                   ShadowResult& result);

  std::shared_ptr<const CandidateRecipes> recipes_;
  std::vector<std::unique_ptr<Slot>> slots_;  // by lane
  std::function<void()> wake_conductor_;
  const Clock& stopwatch_;
  std::unique_ptr<Bench> bench_;
  std::unique_ptr<Results> results_ = std::make_unique<Results>();
  std::atomic<std::uint64_t> cpu_ns_{0};
  std::atomic<std::uint64_t> disturbed_{0};
  std::atomic<bool> stop_{false};
  std::counting_semaphore<> work_{0};
  std::thread thread_;
};

}  // namespace tern::daemon
