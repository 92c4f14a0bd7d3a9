// The kernels that decode or add blocks, which the processor has made.
#include <algorithm>

#include "bench/device_values.h"
#include "bench/kernel_run.h"
#include "codec/codec.h"
#include "codec/device/chunk.h"

namespace tern::bench {
namespace {

using codec::DecodeStatus;
using codec::device::DecodeChunk;
using codec::device::DecodeRoom;
using codec::device::PayloadView;

// Of the chunks of the values' pool: the slots on the device hold these over and over.
std::vector<HostBlock> encode_pool(const RunSetting& setting, codec::Workspace& workspace) {
  std::vector<HostBlock> blocks(
      std::max<std::size_t>(1, setting.values.pool_elements() / setting.elements));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::vector<float> input = setting.values.floats(i * setting.elements, setting.elements);
    HostBlock& block = blocks[i];
    block.payload.resize(codec::encode_bound(setting.recipe, input.size()));
    codec::EncodeRequest request;
    request.input = input;
    const codec::EncodeResult made =
        codec::encode(setting.recipe, request, {block.payload, block.header}, workspace);
    block.payload.resize(made.payload_bytes);
  }
  return blocks;
}

class DecodeRun final : public KernelRun {
 public:
  static Result<std::unique_ptr<KernelRun>> create(const RunSetting& setting);

  Status launch() override {
    const DecodeChunk* orders = arrays_.orders.at(0);
    DecodeRoom room{setting_.what.blocks,
                    wire::block_scale_count(setting_.elements, scale_elements(setting_.recipe))};
    void* parameters[] = {static_cast<void*>(&room), static_cast<void*>(&orders)};
    return setting_.launch(parameters);
  }
  Result<double> bytes_per_element() override;
  Result<std::string> difference() override;

 private:
  // On the device.
  struct Arrays {
    BlockSlots slots;  // the blocks of a chunk one after another
    DeviceValues<PayloadView> views;
    DeviceValues<std::uint32_t> statuses;
    DeviceValues<DecodeChunk> orders;
  };
  static Result<Arrays> make_arrays(const RunSetting& setting, const std::vector<HostBlock>& pool);
  static std::vector<PayloadView> views_of(const std::vector<HostBlock>& pool,
                                           const BlockSlots& slots, std::size_t count);

  DecodeRun(const RunSetting& setting, std::vector<HostBlock> pool, Arrays arrays)
      : setting_(setting), pool_(std::move(pool)), arrays_(std::move(arrays)) {}

  bool adds() const noexcept { return setting_.what.task == KernelTask::add; }
  const HostBlock& block(std::uint32_t chunk, std::uint32_t number) const noexcept {
    return pool_[(std::size_t{chunk} * setting_.what.blocks + number) % pool_.size()];
  }
  Status check_statuses() const;
  Result<bool> is_same(std::uint32_t chunk);

  RunSetting setting_;
  std::vector<HostBlock> pool_;
  Arrays arrays_;
  codec::Workspace workspace_;
};

std::vector<PayloadView> DecodeRun::views_of(const std::vector<HostBlock>& pool,
                                             const BlockSlots& slots, std::size_t count) {
  std::vector<PayloadView> views(count);
  for (std::size_t i = 0; i < count; ++i) {
    const wire::BlockHeader& header = pool[i % pool.size()].header;
    views[i] = {slots.at(i) + wire::kBlockHeaderBytes, header.payload_bytes, header.scale_elements,
                header.flags};
  }
  return views;
}

Result<DecodeRun::Arrays> DecodeRun::make_arrays(const RunSetting& setting,
                                                 const std::vector<HostBlock>& pool) {
  const KernelDevice& device = setting.device;
  const std::uint32_t blocks = setting.what.blocks;
  const std::size_t count = std::size_t{setting.chunks()} * blocks;
  auto slots = BlockSlots::filled(device, count, pool);
  if (!slots) return tl::unexpected(slots.error());
  auto views = DeviceValues<PayloadView>::of(device, views_of(pool, *slots, count));
  if (!views) return tl::unexpected(views.error());
  // A launch that writes no status is not taken for one that succeeded.
  const std::vector<std::uint32_t> none(setting.chunks(), ~std::uint32_t{0});
  auto statuses = DeviceValues<std::uint32_t>::of(device, none);
  if (!statuses) return tl::unexpected(statuses.error());
  std::vector<DecodeChunk> list(setting.chunks());
  for (std::uint32_t i = 0; i < setting.chunks(); ++i) {
    list[i] = {views->at(std::size_t{i} * blocks),
               gpu::as_pointer<float>(setting.values.scratch()) + setting.begin(i), statuses->at(i),
               blocks, setting.elements};
  }
  auto orders = DeviceValues<DecodeChunk>::of(device, list);
  if (!orders) return tl::unexpected(orders.error());
  return Arrays{std::move(*slots), std::move(*views), std::move(*statuses), std::move(*orders)};
}

Result<std::unique_ptr<KernelRun>> DecodeRun::create(const RunSetting& setting) {
  codec::Workspace workspace;
  std::vector<HostBlock> pool = encode_pool(setting, workspace);
  auto arrays = make_arrays(setting, pool);
  if (!arrays) return tl::unexpected(arrays.error());
  // Sums begin at zero.
  const KernelValues& values = setting.values;
  if (auto done = setting.device.fill(values.scratch(), 0, values.bytes()); !done) {
    return tl::unexpected(done.error());
  }
  return std::unique_ptr<KernelRun>(new DecodeRun(setting, std::move(pool), std::move(*arrays)));
}

Status DecodeRun::check_statuses() const {
  const auto statuses = arrays_.statuses.download();
  if (!statuses) return tl::unexpected(statuses.error());
  for (const std::uint32_t status : *statuses) {
    if (status == static_cast<std::uint32_t>(DecodeStatus::ok)) continue;
    return fail(Errc::internal, "a chunk was not decoded: status " + std::to_string(status));
  }
  return {};
}

Result<double> DecodeRun::bytes_per_element() {
  if (auto done = check_statuses(); !done) return tl::unexpected(done.error());
  double payloads = 0;
  for (std::uint32_t chunk = 0; chunk < setting_.chunks(); ++chunk) {
    for (std::uint32_t i = 0; i < setting_.what.blocks; ++i) {
      payloads += static_cast<double>(block(chunk, i).payload.size());
    }
  }
  const double read = payloads / static_cast<double>(setting_.begin(setting_.chunks()));
  return (adds() ? 8 : 4) + read;
}

Result<std::string> DecodeRun::difference() {
  const KernelDevice& device = setting_.device;
  const KernelValues& values = setting_.values;
  // An element that is left out stays a NaN.
  Status done = adds() ? device.copy(values.scratch(), values.floats(), values.bytes())
                       : device.fill(values.scratch(), 0xff, values.bytes());
  if (done) done = launch();
  if (done) done = check_statuses();
  if (!done) return tl::unexpected(done.error());
  for (const std::uint32_t chunk : setting_.sampled_chunks()) {
    auto same = is_same(chunk);
    if (!same) return tl::unexpected(same.error());
    if (!*same) return bytes_differ("the elements", chunk);
  }
  return std::string();
}

Result<bool> DecodeRun::is_same(std::uint32_t chunk) {
  const std::size_t begin = setting_.begin(chunk);
  std::vector<float> expected = setting_.values.floats(begin, setting_.elements);
  for (std::uint32_t i = 0; i < setting_.what.blocks; ++i) {
    const codec::BlockView view{block(chunk, i).header, block(chunk, i).payload};
    const DecodeStatus status = adds() ? codec::decode_add(view, expected, workspace_)
                                       : codec::decode(view, expected, workspace_);
    if (status != DecodeStatus::ok) {
      return fail(Errc::internal,
                  "the processor cannot decode: " + std::string(codec::decode_status_name(status)));
    }
  }
  std::vector<float> seen(expected.size());
  auto done = setting_.device.download(std::as_writable_bytes(std::span(seen)),
                                       setting_.values.scratch() + begin * sizeof(float));
  if (!done) return tl::unexpected(done.error());
  return same_bits(seen, expected);
}

}  // namespace

Result<std::unique_ptr<KernelRun>> make_decode_run(const RunSetting& setting) {
  return DecodeRun::create(setting);
}

}  // namespace tern::bench
