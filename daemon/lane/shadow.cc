#include "daemon/lane/shadow.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "codec/accumulate.h"
#include "codec/codec.h"

namespace tern::daemon {
namespace {

// A measurement that took so many times as long as it ran has been interrupted.
constexpr double kDisturbed = 2.0;

// A tenth of an ordinary thread's share. A thread of class SCHED_IDLE can wait for seconds for a
// millisecond on a node whose cores are all in use, and the tuner would know nothing until then.
constexpr int kNiceness = 10;

std::uint64_t now_ns(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

class ThreadCpuClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override {
    return tern::daemon::now_ns(CLOCK_THREAD_CPUTIME_ID);
  }
};

const ThreadCpuClock kThreadCpuClock;

double energy_of(std::span<const float> values, const float* residual) noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double one = static_cast<double>(values[i]) + static_cast<double>(residual[i]);
    sum += one * one;
  }
  return sum;
}

}  // namespace

struct Shadow::Bench {
  codec::Workspace workspace;
  std::vector<float> residual = std::vector<float>(kSampleElements);
  std::vector<float> decoded = std::vector<float>(kSampleElements);
  std::vector<std::byte> elements = std::vector<std::byte>(std::size_t{4} * kSampleElements);
  std::vector<std::byte> elements_out = std::vector<std::byte>(std::size_t{4} * kSampleElements);
  // Room for any recipe's worst case.
  std::vector<std::byte> block = std::vector<std::byte>(std::size_t{16} * kSampleElements + 4096);
};

Shadow::Shadow(std::shared_ptr<const CandidateRecipes> recipes, std::uint32_t lanes,
               std::function<void()> wake_conductor, const Clock* stopwatch)
    : recipes_(std::move(recipes)),
      wake_conductor_(std::move(wake_conductor)),
      stopwatch_(stopwatch == nullptr ? kThreadCpuClock : *stopwatch),
      bench_(std::make_unique<Bench>()) {
  for (std::uint32_t i = 0; i < lanes; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->values.resize(kSampleElements);
    slot->residual.resize(kSampleElements);
    slots_.push_back(std::move(slot));
  }
}

Shadow::~Shadow() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  work_.release();
  thread_.join();
}

void Shadow::start() {
  thread_ = std::thread([this] { run(); });
}

bool Shadow::has_room(std::uint32_t lane) const noexcept {
  return !slots_[lane]->full.load(std::memory_order_acquire);
}

void Shadow::offer(std::uint32_t lane, const Sample& sample) noexcept {
  Slot& slot = *slots_[lane];
  slot.tensor = sample.tensor;
  slot.dtype = sample.dtype;
  slot.elements =
      static_cast<std::uint32_t>(std::min<std::size_t>(sample.values.size(), kSampleElements));
  std::copy_n(sample.values.begin(), slot.elements, slot.values.begin());
  if (sample.residual == nullptr) {
    std::fill_n(slot.residual.begin(), slot.elements, 0.0f);
  } else {
    std::transform(sample.residual, sample.residual + slot.elements, slot.residual.begin(),
                   [scale = sample.state_scale](float one) { return scale * one; });
  }
  slot.full.store(true, std::memory_order_release);
  work_.release();
}

void Shadow::run() {
  pthread_setname_np(pthread_self(), "tern-shadow");
  // A few milliseconds, once, and at once.
  calibrate();
  // Of this thread alone. Where that is not permitted, the thread is an ordinary one, and rarely
  // runs anyway.
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  while (!stop_.load(std::memory_order_acquire)) {
    work_.acquire();
    do_work();
  }
}

int Shadow::do_work() {
  int measured = 0;
  for (auto& slot : slots_) {
    if (!slot->full.load(std::memory_order_acquire)) continue;
    measure(*slot);
    slot->full.store(false, std::memory_order_release);
    ++measured;
  }
  return measured;
}

void Shadow::calibrate() {
  Slot slot;
  slot.values.resize(kSampleElements);
  slot.residual.assign(kSampleElements, 0.0f);
  slot.elements = kSampleElements;
  for (std::uint32_t i = 0; i < kSampleElements; ++i) {
    // The sum of four uniform draws is bell-shaped enough to time codecs on.
    slot.values[i] = random_unit(1, 4 * i) + random_unit(1, 4 * i + 1) + random_unit(1, 4 * i + 2) +
                     random_unit(1, 4 * i + 3) - 2.0f;
  }
  measure(slot);
}

void Shadow::measure(const Slot& slot) {
  const std::uint64_t begin = stopwatch_.now_ns();
  const double energy =
      energy_of(std::span(slot.values).first(slot.elements), slot.residual.data());
  for (std::size_t i = 1; i < recipes_->size() && !stop_.load(std::memory_order_relaxed); ++i) {
    ShadowResult result;
    if (measure_one(slot, static_cast<tuner::CandidateIndex>(i), energy, result)) {
      results_->push(result);  // full: the conductor is behind, and will have newer ones
    }
  }
  cpu_ns_.fetch_add(stopwatch_.now_ns() - begin, std::memory_order_relaxed);
  wake_conductor_();
}

bool Shadow::measure_one(const Slot& slot, tuner::CandidateIndex candidate, double energy,
                         ShadowResult& result) {
  Bench& bench = *bench_;
  const codec::Recipe& recipe = (*recipes_)[candidate];
  const std::size_t width = dtype_bytes(slot.dtype);
  const std::size_t bytes = slot.elements * width;
  const std::span<const float> values = std::span(slot.values).first(slot.elements);
  const std::span<float> decoded = std::span(bench.decoded).first(slot.elements);
  const bool lossless = codec::is_lossless(recipe);
  wire::BlockHeader header;
  std::uint32_t payload = 0;
  double loss = 0.0;
  if (lossless) codec::from_f32(slot.dtype, values.data(), slot.elements, bench.elements.data());
  std::copy_n(slot.residual.begin(), slot.elements, bench.residual.begin());

  // Zeros lose nothing by any recipe, and show nothing.
  if (!lossless && !(energy > 0.0)) return false;
  const std::uint64_t wall = now_ns(CLOCK_MONOTONIC);
  const std::uint64_t begin = stopwatch_.now_ns();
  if (lossless) {
    payload =
        codec::encode_lossless(recipe, {slot.dtype, std::span(bench.elements).first(bytes), {}, 1},
                               {bench.block, header}, bench.workspace);
  } else {
    codec::EncodeRequest request;
    request.input = values;
    request.state = bench.residual.data();
    request.key = slot.tensor;
    const codec::EncodeResult encoded =
        codec::encode(recipe, request, {bench.block, header}, bench.workspace);
    if (encoded.nonfinite) return false;
    payload = encoded.payload_bytes;
    loss = encoded.residual_energy / energy;
  }
  const std::uint64_t middle = stopwatch_.now_ns();
  const std::span<const std::byte> block = std::span(bench.block).first(payload);
  if (payload == 0) {
    payload = static_cast<std::uint32_t>(bytes);  // not shorter: it would travel raw
  } else if (lossless) {
    codec::decode_lossless({header, block}, {}, std::span(bench.elements_out).first(bytes),
                           bench.workspace);
  } else {
    codec::decode_add({header, block}, decoded, bench.workspace);
  }
  const std::uint64_t end = stopwatch_.now_ns();
  const auto took = static_cast<double>(now_ns(CLOCK_MONOTONIC) - wall);
  if (took > kDisturbed * static_cast<double>(end - begin)) {
    disturbed_.fetch_add(1, std::memory_order_relaxed);
  }
  result.tensor = slot.tensor;
  result.sample.candidate = candidate;
  result.sample.bytes = bytes;
  result.sample.block_bytes = payload + wire::kBlockHeaderBytes;
  result.sample.encode_ns = static_cast<double>(middle - begin);
  result.sample.decode_ns = static_cast<double>(end - middle);
  result.sample.loss = loss;
  return true;
}

}  // namespace tern::daemon
