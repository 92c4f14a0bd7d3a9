#pragma once

// A log of choices that a declaration names, while it is read. A log may be long and its disk slow:
// the conductor asks for it and goes on, and whoever may wait reads it.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "daemon/tensor/tensor_tuning.h"
#include "tuner/choice_log.h"

namespace tern::daemon {

// What a declaration asks of its log.
struct ReplayTerms {
  // A longer log is refused, and none is written.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  std::string log;     // its name
  std::string path;    // of this node's part of it
  std::string tensor;  // whose records are wanted
  std::uint32_t nodes = 1;
  std::uint32_t self = 0;  // this node
  std::uint32_t lanes = 1;
  tuner::ChoiceLogHead head;      // of the group
  bool heeds_eager_form = false;  // the bits of the tensor's results depend on it
  std::uint32_t unusable = 0;     // candidates that the tensor cannot have, as bits
  std::uint64_t most_bytes = kMostBytes;

  friend bool operator==(const ReplayTerms&, const ReplayTerms&) = default;
};

class ReplayReading {
 public:
  using Lanes = std::vector<ReplayedLane>;

  // `recipes`: by the tuner's candidate numbers.
  // `settled`: whether what is being written to the log lies on the disk.
  ReplayReading(
      ReplayTerms terms, std::vector<std::string> recipes,
      std::function<bool()> settled = [] { return true; })
      : terms_(std::move(terms)), recipes_(std::move(recipes)), settled_(std::move(settled)) {}

  // Thread: any one, once. It may take as long as the disk does.
  void read();
  // Thread: any.
  bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  void wait() const noexcept { done_.wait(false, std::memory_order_acquire); }
  const ReplayTerms& terms() const noexcept { return terms_; }

  // REQUIRES for all that follows: it is done.
  // Of memory that its lanes take; 0 of a failure.
  std::uint64_t bytes() const noexcept { return bytes_; }
  // What the log says of the tensor, by lane, or why it cannot be replayed.
  Result<Lanes> take() { return std::move(lanes_); }

 private:
  Result<Lanes> parse() const;
  Status check(const tuner::ChoiceLogHead& head) const;
  Status add(const tuner::LoggedOp& op, Lanes& lanes) const;
  Status add(const tuner::LoggedChunk& chunk, Lanes& lanes) const;
  // Of the candidate with this recipe; the number of candidates: none has it.
  std::size_t index_of(const std::string& recipe) const;
  tl::unexpected<Error> misfit(const std::string& what) const;

  ReplayTerms terms_;
  std::vector<std::string> recipes_;
  std::function<bool()> settled_;
  Result<Lanes> lanes_;
  std::uint64_t bytes_ = 0;
  std::atomic<bool> done_{false};
};

}  // namespace tern::daemon
