// The kernels that encode, with the chunks of a buffer.
#include <variant>

#include "bench/device_values.h"
#include "bench/kernel_run.h"
#include "codec/codec.h"
#include "codec/device/chunk.h"
#include "codec/device/topk_encode.cuh"
#include "codec/sparsifier/implementation.h"

namespace tern::bench {
namespace {

using codec::device::EncodeChunk;
using codec::device::EncodeOutcome;

constexpr std::uint64_t kStreamStep = 3;

class EncodeRun final : public KernelRun {
 public:
  static Result<std::unique_ptr<KernelRun>> create(const RunSetting& setting);

  Status launch() override {
    const EncodeChunk* orders = orders_.at(0);
    void* const stage = std::visit([](auto& of) -> void* { return &of; }, stage_);
    void* parameters[] = {stage, static_cast<void*>(&orders)};
    return setting_.launch(parameters);
  }
  Result<double> bytes_per_element() override;
  Result<std::string> difference() override;

 private:
  using Stage = std::variant<codec::device::ThreelcStage, codec::device::ElementStage,
                             codec::device::TopkStage>;

  // On the device.
  struct Arrays {
    BlockSlots blocks;
    DeviceValues<EncodeOutcome> outcomes;
    DeviceValues<std::uint32_t> wanted;  // topk: how many elements of each chunk
  };
  static Result<Arrays> allocate(const RunSetting& setting);
  static std::vector<EncodeChunk> orders_for(const RunSetting& setting, const Arrays& arrays);

  EncodeRun(const RunSetting& setting, Arrays arrays, DeviceValues<EncodeChunk> orders)
      : setting_(setting), arrays_(std::move(arrays)), orders_(std::move(orders)) {
    const codec::Recipe& recipe = setting.recipe;
    if (recipe.compressor == codec::Compressor::threelc) {
      stage_ = codec::device::ThreelcStage{recipe.scale_elements, recipe.s, recipe.zero_run};
    } else if (setting.what.kernel == gpu::Kernel::topk_encode) {
      stage_ = codec::device::TopkStage{arrays_.wanted.at(0), recipe.sparsifier.exact};
    } else {
      stage_ = codec::device::ElementStage{scale_elements(recipe)};
    }
  }

  bool has_residual() const noexcept { return codec::needs_residual(setting_.recipe); }
  Result<std::string> compare(std::uint32_t chunk, const EncodeOutcome& said);

  RunSetting setting_;
  Arrays arrays_;
  DeviceValues<EncodeChunk> orders_;
  Stage stage_;
  codec::Workspace workspace_;
};

Result<EncodeRun::Arrays> EncodeRun::allocate(const RunSetting& setting) {
  const KernelDevice& device = setting.device;
  const codec::Recipe& recipe = setting.recipe;
  auto blocks =
      BlockSlots::allocate(device, setting.chunks(), codec::encode_bound(recipe, setting.elements));
  if (!blocks) return tl::unexpected(blocks.error());
  auto outcomes = DeviceValues<EncodeOutcome>::allocate(device, setting.chunks());
  if (!outcomes) return tl::unexpected(outcomes.error());
  const auto count =
      static_cast<std::uint32_t>(codec::sparsifier::count_of(recipe.sparsifier, setting.elements));
  const std::vector<std::uint32_t> counts(setting.chunks(), count);
  auto wanted = DeviceValues<std::uint32_t>::of(device, counts);
  if (!wanted) return tl::unexpected(wanted.error());
  return Arrays{std::move(*blocks), std::move(*outcomes), std::move(*wanted)};
}

std::vector<EncodeChunk> EncodeRun::orders_for(const RunSetting& setting, const Arrays& arrays) {
  std::vector<EncodeChunk> orders(setting.chunks());
  for (std::uint32_t i = 0; i < setting.chunks(); ++i) {
    EncodeChunk& order = orders[i];
    const std::size_t begin = setting.begin(i);
    order.input = gpu::as_pointer<const float>(setting.values.floats()) + begin;
    order.residual = codec::needs_residual(setting.recipe)
                         ? gpu::as_pointer<float>(setting.values.scratch()) + begin
                         : nullptr;
    order.block = arrays.blocks.at(i);
    order.outcome = arrays.outcomes.at(i);
    order.stream_step = kStreamStep;
    order.elements = setting.elements;
    order.state_scale = 1.0f;
    order.fixed_scale_max = 0.0f;
    order.delivered = DType::f32;
  }
  return orders;
}

Result<std::unique_ptr<KernelRun>> EncodeRun::create(const RunSetting& setting) {
  auto arrays = allocate(setting);
  if (!arrays) return tl::unexpected(arrays.error());
  auto orders = DeviceValues<EncodeChunk>::of(setting.device, orders_for(setting, *arrays));
  if (!orders) return tl::unexpected(orders.error());
  // The residual of whoever had the memory before may be an output that is not finite.
  const KernelValues& values = setting.values;
  if (auto done = setting.device.fill(values.scratch(), 0, values.bytes()); !done) {
    return tl::unexpected(done.error());
  }
  return std::unique_ptr<KernelRun>(new EncodeRun(setting, std::move(*arrays), std::move(*orders)));
}

Result<double> EncodeRun::bytes_per_element() {
  const auto outcomes = arrays_.outcomes.download();
  if (!outcomes) return tl::unexpected(outcomes.error());
  double block_bytes = 0;
  for (const EncodeOutcome& outcome : *outcomes) {
    if (outcome.nonfinite != 0) return fail(Errc::internal, "a chunk was not finite");
    block_bytes += static_cast<double>(wire::kBlockHeaderBytes + outcome.payload_bytes);
  }
  const double reads = setting_.what.reads_twice() ? 2 : 1;
  const double written = block_bytes / static_cast<double>(setting_.begin(setting_.chunks()));
  return 4 * reads + (has_residual() ? 4 * reads + 4 : 0) + written;
}

Result<std::string> EncodeRun::difference() {
  Status done = arrays_.blocks.spoil();
  const KernelValues& values = setting_.values;
  if (done && has_residual()) done = setting_.device.fill(values.scratch(), 0, values.bytes());
  if (done) done = launch();
  if (!done) return tl::unexpected(done.error());
  const auto outcomes = arrays_.outcomes.download();
  if (!outcomes) return tl::unexpected(outcomes.error());
  for (const std::uint32_t chunk : setting_.sampled_chunks()) {
    auto differs = compare(chunk, (*outcomes)[chunk]);
    if (!differs || !differs->empty()) return differs;
  }
  return std::string();
}

Result<std::string> EncodeRun::compare(std::uint32_t chunk, const EncodeOutcome& said) {
  const std::size_t begin = setting_.begin(chunk);
  const std::vector<float> input = setting_.values.floats(begin, setting_.elements);
  std::vector<float> residual(has_residual() ? setting_.elements : 0, 0.0f);
  HostBlock block;
  block.payload.resize(codec::encode_bound(setting_.recipe, input.size()));
  codec::EncodeRequest request;
  request.input = input;
  request.state = residual.empty() ? nullptr : residual.data();
  request.stream_step = kStreamStep;
  const codec::EncodeResult made =
      codec::encode(setting_.recipe, request, {block.payload, block.header}, workspace_);
  block.payload.resize(made.payload_bytes);

  auto holds = arrays_.blocks.holds(chunk, block);
  if (!holds) return tl::unexpected(holds.error());
  if (!*holds) return bytes_differ("the block", chunk);
  std::vector<float> left(residual.size());
  if (auto done = setting_.device.download(std::as_writable_bytes(std::span(left)),
                                           setting_.values.scratch() + begin * sizeof(float));
      !done) {
    return tl::unexpected(done.error());
  }
  if (!same_bits(left, residual)) return bytes_differ("the residual", chunk);
  const bool same =
      said.payload_bytes == made.payload_bytes && (said.nonfinite != 0) == made.nonfinite &&
      said.input_energy == made.input_energy && said.residual_energy == made.residual_energy;
  return same ? std::string() : bytes_differ("the outcome", chunk);
}

}  // namespace

Result<std::unique_ptr<KernelRun>> make_encode_run(const RunSetting& setting) {
  return EncodeRun::create(setting);
}

}  // namespace tern::bench
