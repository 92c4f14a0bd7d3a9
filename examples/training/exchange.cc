#include "examples/training/exchange.h"

#include <bit>
#include <optional>
#include <vector>

#include "examples/rendezvous/rendezvous.h"
#include "examples/training/tern_server.h"
#include "tern/blocks.hpp"
#include "tern/tern.hpp"

namespace tern::training {
namespace {

Client connect(const ExchangeOptions& options) {
  tern_connect_options connection = TERN_CONNECT_OPTIONS_INIT;
  connection.socket_path = options.socket.empty() ? nullptr : options.socket.c_str();
  connection.job = options.job.c_str();
  connection.arena_bytes = std::uint64_t{16} << 20;
  connection.timeout_ms = options.timeout_ms;
  return Client(connection);
}

Group join(Client* client, const ExchangeOptions& options) {
  tern_join_options join_options = TERN_JOIN_OPTIONS_INIT;
  join_options.rank = options.rank;
  join_options.size = options.size;
  join_options.timeout_ms = options.timeout_ms;
  join_options.op_timeout_ms = options.timeout_ms;
  return rendezvous::join_by_file(*client, options.group_id_file, join_options);
}

// Gradients lie in the arena, where Tern reads and writes them in place.
class TernExchange : public Exchange {
 public:
  TernExchange(const ExchangeOptions& options, std::span<const Parameter> layout)
      : options_(options),
        layout_(layout.begin(), layout.end()),
        client_(connect(options)),
        group_(join(&client_, options)),
        gradients_(client_.allocate<float>(parameter_count(layout))),
        tickets_(layout.size()) {
    if (options.server) {
      server_.emplace(options, layout, TernServer::Rank{&client_, &group_, gradients_});
      return;
    }
    for (const Parameter& parameter : layout_) {
      // Biases are declared like weights; the daemon sends so small a tensor raw.
      tensors_.push_back(declare(parameter));
      if (options.client_blocks) blocks_.emplace_back(client_, group_, tensors_.back());
    }
  }

  std::span<float> gradients() override { return gradients_; }

  void broadcast(std::span<float> parameters) override {
    Ticket ticket = group_.broadcast(parameters, 0);
    finish(&ticket);
  }

  void begin(std::size_t layer) override {
    for (std::size_t i = 0; i < layout_.size(); ++i) {
      if (layout_[i].layer != layer) continue;
      const auto gradient = gradients_.subspan(layout_[i].offset, layout_[i].count());
      if (options_.client_blocks) {
        blocks_[i].all_reduce(gradient, TERN_AVERAGE);
      } else {
        tickets_[i] = group_.all_reduce(tensors_[i], gradient, TERN_AVERAGE);
      }
    }
  }

  void wait(std::size_t layer) override {
    for (std::size_t i = 0; i < layout_.size(); ++i) {
      if (layout_[i].layer != layer) continue;
      if (options_.client_blocks) {
        if (!blocks_[i].wait(wait_ms())) throw Failure(TERN_ERR_TIMEOUT);
        continue;
      }
      finish(&tickets_[i].value());
      tickets_[i].reset();
    }
  }

  ModelServer* server() override { return server_ ? &*server_ : nullptr; }

  void barrier() override {
    Ticket ticket = group_.barrier();
    finish(&ticket);
  }

  void leave_together() override {
    try {
      barrier();
    } catch (const Failure& failure) {
      // A rank whose barrier ended a moment earlier has left: every rank had come to the barrier.
      if (failure.status() != TERN_ERR_GROUP_LEFT) {
        throw;
      }
    }
  }

  bool agree(std::span<const float> parameters) override {
    const auto mine = std::bit_cast<std::int64_t>(checksum(parameters));
    std::int64_t least = mine;
    std::int64_t most = mine;
    Ticket first = group_.all_reduce(std::span(&least, 1), TERN_MIN);
    Ticket second = group_.all_reduce(std::span(&most, 1), TERN_MAX);
    finish(&first);
    finish(&second);
    return least == most;
  }

  std::uint64_t bytes_sent() const override {
    std::uint64_t bytes = server_ ? server_->bytes_sent() : 0;
    for (const Tensor& tensor : tensors_) {
      bytes += tensor.stats().bytes_sent;
    }
    return bytes;
  }

  std::uint64_t bytes_raw() const override {
    std::uint64_t bytes = server_ ? server_->bytes_raw() : 0;
    for (const Tensor& tensor : tensors_) {
      bytes += tensor.stats().bytes_raw;
    }
    return bytes;
  }

  int node() const override { return static_cast<int>(group_.info().node); }

 private:
  Tensor declare(const Parameter& parameter) {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = parameter.name.c_str();
    options.count = parameter.count();
    options.role = TERN_GRADIENT;
    options.recipe = options_.recipe.empty() ? nullptr : options_.recipe.c_str();
    options.client_blocks = options_.client_blocks ? 1 : 0;
    return group_.declare(options);
  }

  // The group's op_timeout ends every operation; the wait is a little longer, so that its better
  // explained failure comes first.
  std::int64_t wait_ms() const { return options_.timeout_ms + 5000; }
  void finish(Ticket* ticket) {
    if (!ticket->wait_for(wait_ms())) {
      throw Failure(TERN_ERR_TIMEOUT);
    }
  }

  ExchangeOptions options_;
  std::vector<Parameter> layout_;
  Client client_;
  Group group_;
  std::span<float> gradients_;
  std::vector<Tensor> tensors_;  // in the order of the layout, as the tickets
  std::vector<std::optional<Ticket>> tickets_;
  std::vector<Blocks> blocks_;        // likewise, with client_blocks
  std::optional<TernServer> server_;  // then there are no tensors
};

// The mean over one rank is its own gradient.
class LocalExchange : public Exchange {
 public:
  explicit LocalExchange(std::size_t count) : gradients_(count) {}

  std::span<float> gradients() override { return gradients_; }
  void broadcast(std::span<float>) override {}
  void begin(std::size_t) override {}
  void wait(std::size_t) override {}
  ModelServer* server() override { return nullptr; }
  void barrier() override {}
  void leave_together() override {}
  bool agree(std::span<const float>) override { return true; }
  std::uint64_t bytes_sent() const override { return 0; }
  std::uint64_t bytes_raw() const override { return 0; }
  int node() const override { return 0; }

 private:
  std::vector<float> gradients_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options,
                                        std::span<const Parameter> layout) {
  if (options.local) return std::make_unique<LocalExchange>(parameter_count(layout));
  return std::make_unique<TernExchange>(options, layout);
}

std::uint64_t checksum(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace tern::training
