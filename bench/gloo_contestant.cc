#include "bench/gloo_contestant.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "bench/inputs.h"

namespace tern::bench {
namespace {

class GlooContestant final : public Contestant {
 public:
  GlooContestant(std::shared_ptr<gloo::Context> context, std::span<float> values)
      : context_(std::move(context)), values_(values) {}

  const std::string& name() const override { return name_; }
  std::optional<double> tolerance() const override { return 1e-5; }
  std::span<float> values() override { return values_; }

  void all_reduce() override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values_.data(), values_.size());
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    void (*const sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::string name_ = "gloo";
  std::span<float> values_;
};

class GlooRunner final : public CollectiveRunner {
 public:
  GlooRunner(std::shared_ptr<gloo::Context> context, const CollectiveShape& shape,
             GlooAllReduce algorithm, std::span<float> memory)
      : context_(std::move(context)),
        shape_(shape),
        algorithm_(algorithm),
        name_(name_of(algorithm)),
        input_(memory.first(shape.input())),
        output_(memory.subspan(shape.input(), shape.output())) {
    if (shape_.kind == Collective::all_reduce && algorithm_ == GlooAllReduce::halving_doubling) {
      output_ = input_;
      halving_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{input_.data()}, static_cast<int>(shape.count));
    }
    if (shape_.kind != Collective::reduce_scatter) return;
    output_ = input_.first(shape.share());  // Gloo leaves a rank's share there
    const std::vector<int> counts(shape.size, static_cast<int>(shape.share()));
    scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{input_.data()}, static_cast<int>(shape.count), counts);
  }

  const std::string& name() const override { return name_; }
  std::span<float> input() override { return input_; }
  std::span<float> output() override { return output_; }

  void run() override {
    switch (shape_.kind) {
      case Collective::all_reduce: {
        if (halving_) return halving_->run();
        gloo::AllreduceOptions options(context_);
        options.setInput(input_.data(), input_.size());
        options.setOutput(output_.data(), output_.size());
        options.setAlgorithm(algorithm_ == GlooAllReduce::bcube
                                 ? gloo::AllreduceOptions::Algorithm::BCUBE
                                 : gloo::AllreduceOptions::Algorithm::RING);
        options.setReduceFunction(sum());
        return gloo::allreduce(options);
      }
      case Collective::reduce: {
        gloo::ReduceOptions options(context_);
        options.setInput(input_.data(), input_.size());
        // Gloo's ranks that are not the root want room for the result too.
        options.setOutput(input_.data() + input_.size(), input_.size());
        options.setRoot(0);
        options.setReduceFunction(sum());
        return gloo::reduce(options);
      }
      case Collective::reduce_scatter:
        return scatter_->run();
      case Collective::all_gather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(input_.data(), input_.size());
        options.setOutput(output_.data(), output_.size());
        return gloo::allgather(options);
      }
      case Collective::broadcast: {
        gloo::BroadcastOptions options(context_);
        if (shape_.root()) options.setInput(input_.data(), input_.size());
        options.setOutput(output_.data(), output_.size());
        options.setRoot(0);
        return gloo::broadcast(options);
      }
      case Collective::gather: {
        gloo::GatherOptions options(context_);
        options.setInput(input_.data(), input_.size());
        if (shape_.root()) options.setOutput(output_.data(), output_.size());
        options.setRoot(0);
        return gloo::gather(options);
      }
      case Collective::scatter: {
        gloo::ScatterOptions options(context_);
        std::vector<float*> shares;
        for (std::uint32_t rank = 0; shape_.root() && rank < shape_.size; ++rank) {
          shares.push_back(input_.data() + rank * shape_.share());
        }
        if (shape_.root()) options.setInputs(shares, shape_.share());
        options.setOutput(output_.data(), output_.size());
        options.setRoot(0);
        return gloo::scatter(options);
      }
      case Collective::all_to_all: {
        gloo::AlltoallOptions options(context_);
        options.setInput(input_.data(), input_.size());
        options.setOutput(output_.data(), output_.size());
        return gloo::alltoall(options);
      }
      case Collective::ping_pong:
        return ping_pong();
    }
  }

 private:
  void ping_pong() {
    if (shape_.rank > 1) return;
    const int peer = shape_.root() ? 1 : 0;
    auto out = context_->createUnboundBuffer(shape_.root() ? input_.data() : output_.data(),
                                             output_.size_bytes());
    auto in = context_->createUnboundBuffer(output_.data(), output_.size_bytes());
    const std::uint64_t slot = next_slot_++;
    if (shape_.root()) out->send(peer, slot);
    in->recv(peer, slot);
    in->waitRecv();
    if (!shape_.root()) out->send(peer, slot);
    out->waitSend();
  }

  using Sum = void (*)(void*, const void*, const void*, std::size_t);
  static Sum sum() { return &gloo::sum<float>; }

  static const char* name_of(GlooAllReduce algorithm) {
    switch (algorithm) {
      case GlooAllReduce::bcube:
        return "gloo_bcube";
      case GlooAllReduce::halving_doubling:
        return "gloo_halving_doubling";
      case GlooAllReduce::ring:
        break;
    }
    return "gloo";
  }

  std::shared_ptr<gloo::Context> context_;
  CollectiveShape shape_;
  GlooAllReduce algorithm_;
  std::string name_;
  std::span<float> input_, output_;
  std::uint64_t next_slot_ = 1 << 20;  // beyond those of Gloo's own operations
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> halving_;
};

}  // namespace

struct GlooNode::State {
  std::shared_ptr<gloo::rendezvous::Context> context;
  FloatArray memory;
};

bool GlooNode::available() { return true; }

GlooNode::GlooNode(const Options& options)
    : state_(new State{std::make_shared<gloo::rendezvous::Context>(options.rank, options.size),
                       FloatArray(options.max_bytes / sizeof(float), 0.0f)}) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = options.address;
  gloo::rendezvous::FileStore store(options.folder);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  state_->context->connectFullMesh(store, device);
}

GlooNode::~GlooNode() = default;

std::unique_ptr<Contestant> GlooNode::contestant(std::size_t count) {
  return std::make_unique<GlooContestant>(state_->context, state_->memory.span().first(count));
}

std::unique_ptr<CollectiveRunner> GlooNode::runner(const CollectiveShape& shape,
                                                   GlooAllReduce algorithm) {
  const bool power_of_two = (shape.size & (shape.size - 1)) == 0;
  if (shape.kind == Collective::reduce_scatter && !power_of_two) return nullptr;
  return std::make_unique<GlooRunner>(state_->context, shape, algorithm, state_->memory.span());
}

}  // namespace tern::bench
