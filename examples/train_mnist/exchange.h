#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/train_mnist/mlp.h"
#include "tern/tern.hpp"

namespace tern::train_mnist {

struct ExchangeOptions {
  std::string socket;  // empty: libtern's default
  std::string group_id_file;
  int rank = 0;
  int size = 1;
  std::string recipe;
  std::int64_t timeout_ms = 60000;  // for the others to come, and for every operation
};

// All that this program asks of Tern. Every function throws tern::Failure, which says what failed,
// why, and which rank is missing; no wait is longer than the timeout.
class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options);

  // Memory of the arena for one gradient of all parameters: Tern reads and writes it in place.
  std::span<float> gradients() { return gradients_; }

  // Gives every rank the parameters of rank 0.
  void broadcast(std::span<float> parameters);

  // Begins to average the two tensors of a layer, which must not be touched until wait(layer)
  // returns.
  void begin(std::size_t layer);
  void wait(std::size_t layer);

  void barrier();

  // The last call. Leaving a group fails what is in flight on other ranks, so that nobody should
  // leave before all have their last result.
  void leave_together();

  // Whether the parameters have the same bits on all ranks. Called by all ranks.
  bool agree(std::span<const float> parameters);

  // Bytes of gradient blocks that this node, with all its ranks, has sent to others since the join.
  std::uint64_t bytes_sent() const;

  // What they would have been uncompressed.
  std::uint64_t bytes_raw() const;

  tern_group_info info() const { return group_.info(); }

 private:
  void finish(Ticket* ticket);

  ExchangeOptions options_;
  Client client_;
  Group group_;
  std::span<float> gradients_;
  std::vector<Tensor> tensors_;  // in the order of kParameters
  std::array<std::optional<Ticket>, kParameters.size()> tickets_;
};

// FNV-1a over the bytes.
std::uint64_t checksum(std::span<const float> values);

}  // namespace tern::train_mnist
