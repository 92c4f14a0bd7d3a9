#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/training/exchange.h"
#include "examples/training/model_server.h"
#include "examples/training/parameter.h"
#include "tern/tern.hpp"

namespace tern::training {

// Through tern_push and tern_pull: a server for each tensor of the layout, so that each has
// residuals and scales of its own.
class TernServer : public ModelServer {
 public:
  struct Rank {
    Client* client;
    Group* group;
    std::span<float> gradients;  // of all tensors
  };
  // What the rank has outlives this.
  TernServer(const ExchangeOptions& options, std::span<const Parameter> layout, const Rank& rank);

  OwnedPart owned(std::size_t tensor) const override { return tensors_[tensor].owned; }
  void push(std::size_t tensor) override;
  std::span<const float> pushed(std::size_t tensor) override;
  void pull(std::size_t tensor, std::span<const float> difference) override;
  std::span<const float> pulled(std::size_t tensor) override;

  // Of all blocks of both ways that this node has sent.
  std::uint64_t bytes_sent() const;
  std::uint64_t bytes_raw() const;

 private:
  struct Served {
    PushPull server;
    OwnedPart owned;
    std::span<float> gradient;     // of the whole tensor
    std::span<float> sum;          // what has been pushed here, and then its difference
    std::span<float> differences;  // of the whole tensor
    std::optional<Ticket> ticket;
  };
  void finish(Served& served) const;

  std::int64_t wait_ms_;
  std::vector<Served> tensors_;
};

}  // namespace tern::training
