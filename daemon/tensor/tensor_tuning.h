#pragma once

// What the tuner has chosen for one tensor, as lanes read it, and what lanes keep for it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/recipe.h"
#include "shm/layout.h"
#include "tuner/tensor_policy.h"
#include "wire/frame.h"

namespace tern::daemon {

static_assert(shm::kMaxTunedRecipes == tuner::kMaxCandidates);

// An op waits for the slowest of its nodes, so that they had better send it alike: as this node.
inline constexpr std::uint32_t kLeadingNode = 0;

// The recipes by the tuner's candidate numbers; the same for all tensors of the daemon.
using CandidateRecipes = std::vector<codec::Recipe>;

// A log of choices as one lane of one tensor looks things up in it. Both are sorted.
struct ReplayedLane {
  struct Op {
    std::uint64_t use = 0;
    std::uint32_t row = 0;  // of candidates
    std::uint8_t probe_chunks = 0;
  };
  struct Chunk {
    std::uint64_t use = 0;
    std::uint64_t place = 0;  // place_of()
    tuner::CandidateIndex candidate = tuner::kRaw;
    auto key() const noexcept { return std::pair(use, place); }
  };
  // The op's blocks in the order of their chunks, each leg's of a chunk.
  static constexpr std::uint64_t place_of(std::uint32_t chunk, wire::Leg leg) noexcept {
    return std::uint64_t{chunk} * 2 + (leg == wire::Leg::broadcast ? 1 : 0);
  }

  std::uint32_t nodes = 1;  // of the group
  std::vector<Op> ops;
  std::vector<Chunk> chunks;
  // Rows by node, at this node's own place that of results: there may be millions, and all must be
  // freed at once.
  std::vector<tuner::CandidateIndex> candidates;

  std::span<const tuner::CandidateIndex> by_node(const Op& op) const noexcept {
    return std::span(candidates).subspan(std::size_t{op.row} * nodes, nodes);
  }
  // The record that holds for the use-th op; null before the first.
  const Op* op(std::uint64_t use) const noexcept {
    const auto after = std::upper_bound(ops.begin(), ops.end(), use,
                                        [](std::uint64_t at, const Op& op) { return at < op.use; });
    return after == ops.begin() ? nullptr : &*(after - 1);
  }
  const Chunk* chunk(std::uint64_t use, std::uint64_t place) const noexcept {
    const auto found =
        std::lower_bound(chunks.begin(), chunks.end(), std::pair(use, place),
                         [](const Chunk& chunk, const auto& key) { return chunk.key() < key; });
    return found != chunks.end() && found->key() == std::pair(use, place) ? &*found : nullptr;
  }
  // As they must be for these to find them. Of equals the order stays.
  void sort() {
    std::stable_sort(ops.begin(), ops.end(),
                     [](const Op& a, const Op& b) { return a.use < b.use; });
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Chunk& a, const Chunk& b) { return a.key() < b.key(); });
  }
  // Of its memory.
  std::uint64_t bytes() const noexcept {
    return ops.capacity() * sizeof(Op) + chunks.capacity() * sizeof(Chunk) +
           candidates.capacity() * sizeof(tuner::CandidateIndex);
  }
};

class TensorTuning {
 public:
  // The candidates of the daemon; the same for all its tensors.
  struct Candidates {
    std::shared_ptr<const CandidateRecipes> recipes;
    std::uint16_t list = 0;
  };
  // The tensor among its daemon's and on its nodes.
  struct Place {
    std::uint64_t number = 0;
    std::uint32_t nodes = 1;
    std::uint32_t self = 0;    // this node
    std::uint64_t chunks = 0;  // that have a residual: more than any number of one
  };

  TensorTuning(Candidates candidates, const Place& place)
      : recipes_(std::move(candidates.recipes)),
        list_(candidates.list),
        number_(place.number),
        self_(place.self),
        by_node_(place.nodes),
        residual_pending_(place.chunks, 0) {}

  // Of no other tensor of this daemon, ever.
  std::uint64_t number() const noexcept { return number_; }
  const codec::Recipe& recipe(tuner::CandidateIndex candidate) const noexcept {
    return (*recipes_)[candidate];
  }

  std::span<const codec::Recipe> recipes() const noexcept { return *recipes_; }

  // AnnounceBody::candidates: equal for equal lists of candidates.
  std::uint16_t list() const noexcept { return list_; }

  // Whether blocks of this candidate look so. Those of 3LC do whatever their s is.
  bool makes(tuner::CandidateIndex candidate, const wire::BlockHeader& header) const noexcept {
    const codec::Recipe& recipe = (*recipes_)[candidate];
    const auto raw = static_cast<std::uint8_t>(wire::CodecId::raw);
    // What does not become shorter travels raw.
    if (codec::is_lossless(recipe) && header.codec == raw) return true;
    if (static_cast<std::uint8_t>(recipe.compressor) != header.codec) return false;
    if (recipe.compressor != codec::Compressor::staged) return true;
    return static_cast<std::uint8_t>(recipe.sparsifier.kind) == header.stages.sparsifier &&
           static_cast<std::uint8_t>(recipe.quantizer.kind) == header.stages.quantizer &&
           (header.stages.bits == 0 || recipe.quantizer.bits == header.stages.bits);
  }
  // Of a choice, beside what goes to each node.
  struct Aside {
    tuner::CandidateIndex contributions = tuner::kRaw;  // to all whom the op waits for
    std::uint8_t probe_chunks = 0;
    bool trial = false;
  };

  // By which candidates the leading node sends.
  struct Lead {
    tuner::CandidateIndex results = tuner::kNoCandidate;
    tuner::CandidateIndex contributions = tuner::kNoCandidate;
    bool trial = false;
    std::uint16_t list = 0;  // in which they are numbers
  };

  // ---- The conductor's ----
  void publish(std::uint32_t version, const tuner::Choice& choice,
               tuner::CandidateIndex contributions) noexcept {
    version_.fetch_add(1, std::memory_order_acq_rel);  // odd: being written
    std::size_t peer = 0;
    for (std::size_t node = 0; node < by_node_.size(); ++node) {
      const auto one = node == self_ ? choice.broadcast : choice.reduce[peer++];
      // Release: who sees this also sees that the version is odd.
      by_node_[node].store(one, std::memory_order_release);
    }
    contributions_.store(contributions, std::memory_order_release);
    probe_chunks_.store(choice.probe_chunks, std::memory_order_release);
    trial_.store(choice.trial, std::memory_order_release);
    version_.store(2 * version, std::memory_order_release);
  }

  // Candidates that the tensor may have at present, as bits.
  void allow(std::uint32_t candidates) noexcept {
    allowed_.store(candidates, std::memory_order_relaxed);
  }

  // ---- The lanes' ----
  // What the tuner reckons with is one kind of operation: the first whose blocks it chose.
  // `kind`: the plan's number, never 0.
  bool serves(std::uint16_t kind) const noexcept {
    const std::uint16_t first = kind_.load(std::memory_order_relaxed);
    return first == 0 || first == kind;
  }
  // False: it is another's.
  bool take(std::uint16_t kind) noexcept {
    std::uint16_t first = 0;
    return kind_.compare_exchange_strong(first, kind, std::memory_order_relaxed) || first == kind;
  }
  bool may_use(std::uint32_t candidate) const noexcept {
    return candidate < recipes_->size() &&
           (allowed_.load(std::memory_order_relaxed) >> candidate & 1) != 0;
  }
  // A consistent copy of the choice; its version. 0, and raw for all: the conductor was interrupted
  // in the middle of publishing, for which no lane waits.
  std::uint32_t read(std::span<tuner::CandidateIndex> by_node, Aside& aside) const noexcept {
    const std::uint32_t version = read_consistently([&] {
      for (std::size_t node = 0; node < by_node_.size(); ++node) {
        by_node[node] = by_node_[node].load(std::memory_order_acquire);
      }
      aside = {contributions_.load(std::memory_order_acquire),
               probe_chunks_.load(std::memory_order_acquire),
               trial_.load(std::memory_order_acquire)};
    });
    if (version != 0) return version;
    std::fill(by_node.begin(), by_node.end(), tuner::kRaw);
    aside = {};
    return 0;
  }
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire) / 2; }
  // Of the newest choice.
  std::uint8_t probe_chunks() const noexcept {
    return probe_chunks_.load(std::memory_order_relaxed);
  }
  tuner::CandidateIndex now(std::uint32_t node) const noexcept {
    return by_node_[node].load(std::memory_order_relaxed);
  }

  // The choice as a leading node announces it: a consistent copy, or none, as of read().
  Lead newest() const noexcept {
    Lead lead;
    const bool read = read_consistently([&] {
                        lead = {by_node_[self_].load(std::memory_order_acquire),
                                contributions_.load(std::memory_order_acquire),
                                trial_.load(std::memory_order_acquire), list_};
                      }) != 0;
    return read ? lead : Lead{};
  }
  // A sample of the tensor's values is wanted; the lane that takes one clears it.
  std::atomic<bool> sample_wanted{true};
  // Changes are reported, for the log of choices.
  bool logged = false;
  std::vector<ReplayedLane> replay;  // by lane; empty: the tuner chooses
  std::uint64_t replay_bytes = 0;    // of its memory

  // The residual of this chunk holds more than what rounding took away: its next block carries it
  // as well, however that is sent. Each lane touches its own chunks.
  // REQUIRES: the tensor has a residual.
  std::uint8_t& residual_pending(std::uint32_t chunk) noexcept { return residual_pending_[chunk]; }
  // Whether any of the first `chunks` has one.
  bool any_residual_pending(std::uint32_t chunks) const noexcept {
    const auto end = residual_pending_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                     chunks, residual_pending_.size()));
    return std::any_of(residual_pending_.begin(), end,
                       [](std::uint8_t pending) { return pending != 0; });
  }
  void set_residuals_pending(std::uint32_t chunks) noexcept {
    std::fill_n(residual_pending_.begin(), std::min<std::size_t>(chunks, residual_pending_.size()),
                std::uint8_t{1});
  }
  // Before any lane knows the tensor: its residual comes from an earlier declaration.
  void set_all_residuals_pending() noexcept {
    std::fill(residual_pending_.begin(), residual_pending_.end(), std::uint8_t{1});
  }
  // After the last lane has let go of it.
  bool any_residual_pending() const noexcept {
    return std::any_of(residual_pending_.begin(), residual_pending_.end(),
                       [](std::uint8_t pending) { return pending != 0; });
  }

 private:
  // The version of what `copy` has copied; 0: see read().
  template <typename Copy>
  std::uint32_t read_consistently(Copy copy) const noexcept {
    constexpr int kTries = 64;
    for (int i = 0; i < kTries; ++i) {
      const std::uint32_t before = version_.load(std::memory_order_acquire);
      copy();
      if ((before & 1) == 0 && version_.load(std::memory_order_acquire) == before) {
        return before / 2;
      }
    }
    return 0;
  }

  std::shared_ptr<const CandidateRecipes> recipes_;
  std::uint16_t list_;
  std::uint64_t number_;
  std::uint32_t self_;
  std::atomic<std::uint32_t> version_{0};
  std::vector<std::atomic<tuner::CandidateIndex>> by_node_;
  std::atomic<tuner::CandidateIndex> contributions_{tuner::kRaw};
  std::atomic<std::uint8_t> probe_chunks_{0};
  std::atomic<bool> trial_{false};
  std::atomic<std::uint32_t> allowed_{1u << tuner::kRaw};
  std::atomic<std::uint16_t> kind_{0};
  std::vector<std::uint8_t> residual_pending_;
};

}  // namespace tern::daemon
