#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "examples/training/model_server.h"
#include "examples/training/parameter.h"

namespace tern::training {

struct ExchangeOptions {
  std::string job;
  std::string socket;  // empty: libtern's default
  std::string group_id_file;
  bool local = false;  // one rank and no daemon
  int rank = 0;
  int size = 1;
  std::string recipe;
  // Gradients are encoded, and results decoded, in this process: one rank on each node.
  bool client_blocks = false;
  // Ranks keep the model and are pushed gradients, in place of averaging them for all.
  bool server = false;
  int server_rank = -1;             // the rank that keeps it; -1: every rank keeps a part
  std::string pull_recipe;          // of the model's differences; empty: as the gradients'
  std::int64_t timeout_ms = 60000;  // for the others to come, and for every operation
};

// All that training asks of other ranks. Functions throw tern::Failure, which says what failed,
// why, and which rank is missing; no wait is longer than the timeout.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Memory for one gradient of all parameters.
  virtual std::span<float> gradients() = 0;

  // Gives every rank the parameters of rank 0.
  virtual void broadcast(std::span<float> parameters) = 0;

  // Begins to average the tensors of a layer, which must not be touched until wait(layer) returns.
  virtual void begin(std::size_t layer) = 0;
  virtual void wait(std::size_t layer) = 0;

  // In place of these two where ranks keep the model, else null. Owned by this.
  virtual ModelServer* server() = 0;

  virtual void barrier() = 0;

  // The last call. Leaving a group fails what is in flight on other ranks, so that nobody should
  // leave before all have their last result.
  virtual void leave_together() = 0;

  // Whether the parameters have the same bits on all ranks. Called by all ranks.
  virtual bool agree(std::span<const float> parameters) = 0;

  // Bytes of blocks that this node, with all its ranks, has sent to others since the join, of
  // gradients and of differences.
  virtual std::uint64_t bytes_sent() const = 0;

  // What they would have been uncompressed.
  virtual std::uint64_t bytes_raw() const = 0;

  virtual int node() const = 0;
};

// Through Tern, or, where the options say so, with nobody.
std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options,
                                        std::span<const Parameter> layout);

// FNV-1a over the bytes.
std::uint64_t checksum(std::span<const float> values);

}  // namespace tern::training
