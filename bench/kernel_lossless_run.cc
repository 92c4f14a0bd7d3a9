// The kernel that encodes elements of 16 bits without loss.
#include "bench/device_values.h"
#include "bench/kernel_run.h"
#include "codec/codec.h"
#include "codec/device/lossless_encode.cuh"

namespace tern::bench {
namespace {

using codec::device::LosslessChunk;

constexpr std::uint64_t kLosslessStep = 3;  // of the stream

class LosslessRun final : public KernelRun {
 public:
  static Result<std::unique_ptr<KernelRun>> create(const RunSetting& setting);

  Status launch() override {
    const LosslessChunk* orders = orders_.at(0);
    void* parameters[] = {static_cast<void*>(&orders)};
    return setting_.launch(parameters);
  }
  Result<double> bytes_per_element() override;
  Result<std::string> difference() override;

 private:
  // On the device.
  struct Arrays {
    BlockSlots blocks;
    DeviceValues<std::uint32_t> payload_bytes;
  };

  LosslessRun(const RunSetting& setting, Arrays arrays, DeviceValues<LosslessChunk> orders)
      : setting_(setting), arrays_(std::move(arrays)), orders_(std::move(orders)) {}

  static std::vector<LosslessChunk> orders_for(const RunSetting& setting, const Arrays& arrays);

  RunSetting setting_;
  Arrays arrays_;
  DeviceValues<LosslessChunk> orders_;
  codec::Workspace workspace_;
};

std::vector<LosslessChunk> LosslessRun::orders_for(const RunSetting& setting,
                                                   const Arrays& arrays) {
  std::vector<LosslessChunk> orders(setting.chunks());
  for (std::uint32_t i = 0; i < setting.chunks(); ++i) {
    LosslessChunk& order = orders[i];
    order.input = gpu::as_pointer<const std::uint16_t>(setting.values.halves()) + setting.begin(i);
    order.block = arrays.blocks.at(i);
    order.payload_bytes = arrays.payload_bytes.at(i);
    order.stream_step = kLosslessStep;
    order.elements = setting.elements;
    order.dtype = DType::bf16;
  }
  return orders;
}

Result<std::unique_ptr<KernelRun>> LosslessRun::create(const RunSetting& setting) {
  const KernelDevice& device = setting.device;
  auto blocks = BlockSlots::allocate(device, setting.chunks(), std::size_t{2} * setting.elements);
  if (!blocks) return tl::unexpected(blocks.error());
  auto bytes = DeviceValues<std::uint32_t>::allocate(device, setting.chunks());
  if (!bytes) return tl::unexpected(bytes.error());
  Arrays arrays{std::move(*blocks), std::move(*bytes)};
  auto orders = DeviceValues<LosslessChunk>::of(device, orders_for(setting, arrays));
  if (!orders) return tl::unexpected(orders.error());
  return std::unique_ptr<KernelRun>(
      new LosslessRun(setting, std::move(arrays), std::move(*orders)));
}

Result<double> LosslessRun::bytes_per_element() {
  const auto payloads = arrays_.payload_bytes.download();
  if (!payloads) return tl::unexpected(payloads.error());
  double block_bytes = 0;
  for (const std::uint32_t bytes : *payloads) {
    if (bytes == 0) return fail(Errc::internal, "a chunk was not made shorter");
    block_bytes += static_cast<double>(wire::kBlockHeaderBytes + bytes);
  }
  return 2 + block_bytes / static_cast<double>(setting_.begin(setting_.chunks()));
}

Result<std::string> LosslessRun::difference() {
  Status done = arrays_.blocks.spoil();
  if (done) done = launch();
  if (done) done = setting_.device.finish();
  if (!done) return tl::unexpected(done.error());
  for (const std::uint32_t chunk : setting_.sampled_chunks()) {
    const std::vector<std::uint16_t> input =
        setting_.values.halves(setting_.begin(chunk), setting_.elements);
    HostBlock block;
    block.payload.resize(input.size() * sizeof(std::uint16_t));
    codec::LosslessRequest request;
    request.dtype = DType::bf16;
    request.input = std::as_bytes(std::span(input));
    request.stream_step = kLosslessStep;
    block.payload.resize(codec::encode_lossless(setting_.recipe, request,
                                                {block.payload, block.header}, workspace_));
    auto holds = arrays_.blocks.holds(chunk, block);
    if (!holds) return tl::unexpected(holds.error());
    if (!*holds) return bytes_differ("the block", chunk);
  }
  return std::string();
}

}  // namespace

Result<std::unique_ptr<KernelRun>> make_lossless_run(const RunSetting& setting) {
  return LosslessRun::create(setting);
}

}  // namespace tern::bench
