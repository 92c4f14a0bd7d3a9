#include "bench/tern_contestant.h"

#include "bench/group_id_file.h"
#include "blocks/include/tern/blocks.hpp"

namespace tern::bench {
namespace {

constexpr std::int64_t kTimeoutMs = 60'000;

Client connect(const TernNode::Options& options) {
  tern_connect_options connection = TERN_CONNECT_OPTIONS_INIT;
  connection.socket_path = options.socket.empty() ? nullptr : options.socket.c_str();
  connection.job = options.job.c_str();
  const std::uint64_t tensors = options.copies ? 2 : 1;
  // A slot is a little longer than its chunk.
  const std::uint64_t slots = options.block_tensors * (options.max_bytes * 9 / 8 + (1u << 20));
  connection.arena_bytes = tensors * options.max_bytes + slots + (std::uint64_t{1} << 20);
  return Client(connection);
}

Group join(Client& client, const TernNode::Options& options) {
  tern_group_id id = {};
  if (options.rank == 0) {
    id = client.mint();
    publish_group_id(options.group_id_file, id);
  } else {
    id = await_group_id(options.group_id_file);
  }
  tern_join_options join_options = TERN_JOIN_OPTIONS_INIT;
  join_options.rank = options.rank;
  join_options.size = options.size;
  // Comparing the results' checksums is for tests and is not what the others do.
  join_options.verify = 0;
  join_options.op_timeout_ms = kTimeoutMs;
  return client.join(id, join_options);
}

Traffic traffic_of(const Tensor& tensor) {
  const tern_tensor_stats stats = tensor.stats();
  return Traffic{.ops = stats.ops,
                 .bytes_raw = stats.bytes_raw,
                 .bytes_sent = stats.bytes_sent,
                 .state_bytes = stats.state_bytes,
                 .residual_ratio = stats.residual_ratio,
                 .encode_ns = stats.encode_ns,
                 .queue_ns = stats.queue_ns,
                 .wire_ns = stats.wire_ns,
                 .decode_ns = stats.decode_ns,
                 .wait_ns = stats.wait_ns,
                 .recipe = stats.recipe};
}

class TernContestant final : public Contestant {
 public:
  // `where`: empty for the arena.
  TernContestant(Group group, const std::string& recipe, const std::string& where,
                 std::span<float> values)
      : group_(std::move(group)),
        name_("tern " + recipe + where),
        recipe_(recipe),
        values_(values),
        tensor_(group_.declare<float>(recipe + where + "/" + std::to_string(values.size()),
                                      values.size(), TERN_GRADIENT, recipe)) {}

  const std::string& name() const override { return name_; }

  std::optional<double> tolerance() const override {
    if (recipe_ == "raw") return 1e-5;
    if (recipe_ == "bf16") return 0.05;
    return std::nullopt;
  }

  std::span<float> values() override { return values_; }

  void all_reduce() override {
    Ticket ticket = group_.all_reduce(tensor_, values_);
    ticket.wait();
  }

  std::optional<Traffic> traffic() const override { return traffic_of(tensor_); }

 private:
  Group group_;
  std::string name_;
  std::string recipe_;
  std::span<float> values_;
  Tensor tensor_;
};

// Encodes and decodes in this process.
class BlocksContestant final : public Contestant {
 public:
  BlocksContestant(const Client& client, const Group& group, const std::string& recipe,
                   std::span<float> values)
      : name_("tern " + recipe + ", blocks"),
        values_(values),
        blocks_(client, group, declare(group, recipe, values.size())) {}

  const std::string& name() const override { return name_; }
  std::optional<double> tolerance() const override { return std::nullopt; }
  std::span<float> values() override { return values_; }
  void all_reduce() override {
    blocks_.all_reduce(values_);
    blocks_.wait();
  }
  std::optional<Traffic> traffic() const override { return traffic_of(blocks_.tensor()); }

 private:
  static Tensor declare(Group group, const std::string& recipe, std::size_t count) {
    const std::string name = recipe + ", blocks/" + std::to_string(count);
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = name.c_str();
    options.count = count;
    options.role = TERN_GRADIENT;
    options.recipe = recipe.c_str();
    options.client_blocks = 1;
    return group.declare(options);
  }

  std::string name_;
  std::span<float> values_;
  Blocks blocks_;
};

class TernRunner final : public CollectiveRunner {
 public:
  TernRunner(Group group, const CollectiveShape& shape, std::span<float> memory)
      : group_(std::move(group)),
        kind_(shape.kind),
        rank_(static_cast<std::int32_t>(shape.rank)),
        input_(memory.first(shape.input())),
        output_(memory.subspan(shape.input(), shape.output())) {
    op_.input = input_.empty() ? nullptr : input_.data();
    op_.output = output_.empty() ? nullptr : output_.data();
    op_.count = shape.count;
  }

  const std::string& name() const override { return name_; }
  std::span<float> input() override { return input_; }
  std::span<float> output() override { return output_; }
  void run() override {
    if (kind_ == Collective::ping_pong) return ping_pong();
    submit().wait();
  }

 private:
  void ping_pong() {
    if (rank_ > 1) return;
    const std::int32_t peer = 1 - rank_;
    // The recv is there before the send comes.
    Ticket received = group_.recv(output_, peer);
    if (rank_ == 0) {
      group_.send(std::span<const float>(input_), peer).wait();
      return received.wait();
    }
    received.wait();
    group_.send(std::span<const float>(output_), peer).wait();
  }

  Ticket submit() {
    switch (kind_) {
      case Collective::all_reduce:
      case Collective::ping_pong:
        break;
      case Collective::reduce:
        return group_.reduce(op_);
      case Collective::reduce_scatter:
        return group_.reduce_scatter(op_);
      case Collective::all_gather:
        return group_.all_gather(op_);
      case Collective::broadcast:
        return group_.broadcast(op_);
      case Collective::gather:
        return group_.gather(op_);
      case Collective::scatter:
        return group_.scatter(op_);
      case Collective::all_to_all:
        return group_.all_to_all(op_);
    }
    return group_.all_reduce(op_);
  }

  Group group_;
  Collective kind_;
  std::int32_t rank_;
  std::string name_ = "tern";
  std::span<float> input_, output_;
  tern_op op_ = TERN_OP_INIT;
};

}  // namespace

TernNode::TernNode(const Options& options)
    : client_(connect(options)),
      group_(join(client_, options)),
      memory_(client_.allocate<float>(options.max_bytes / sizeof(float))) {}

std::unique_ptr<Contestant> TernNode::contestant(const std::string& recipe, std::size_t count,
                                                 Memory memory) {
  switch (memory) {
    case Memory::arena:
      break;
    case Memory::outside:
      outside_.resize(memory_.size());
      return std::make_unique<TernContestant>(group_, recipe, ", outside",
                                              std::span(outside_).first(count));
    case Memory::blocks:
      outside_.resize(memory_.size());
      return std::make_unique<BlocksContestant>(client_, group_, recipe,
                                                std::span(outside_).first(count));
    case Memory::region:
      if (region_.empty()) region_ = client_.allocate_region<float>(memory_.size());
      return std::make_unique<TernContestant>(group_, recipe, ", region", region_.first(count));
  }
  return std::make_unique<TernContestant>(group_, recipe, "", memory_.first(count));
}

std::unique_ptr<CollectiveRunner> TernNode::runner(const CollectiveShape& shape) {
  return std::make_unique<TernRunner>(group_, shape, memory_);
}

}  // namespace tern::bench
