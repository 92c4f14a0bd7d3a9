#include "bench/gloo_contestant.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

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

}  // namespace tern::bench
