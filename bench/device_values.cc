#include "bench/device_values.h"

#include <cstring>

namespace tern::bench {
namespace {

constexpr std::size_t kLine = 64;

// The header and the payload, as they lie in a slot.
void write_block(const HostBlock& block, std::byte* to) {
  std::memcpy(to, &block.header, wire::kBlockHeaderBytes);
  std::ranges::copy(block.payload, to + wire::kBlockHeaderBytes);
}

}  // namespace

Result<BlockSlots> BlockSlots::allocate(const KernelDevice& device, std::size_t count,
                                        std::size_t payload_bytes) {
  const std::size_t slot = (wire::kBlockHeaderBytes + payload_bytes + kLine - 1) / kLine * kLine;
  auto bytes = DeviceValues<std::byte>::allocate(device, count * slot);
  if (!bytes) return tl::unexpected(bytes.error());
  return BlockSlots(device, std::move(*bytes), slot);
}

Result<BlockSlots> BlockSlots::filled(const KernelDevice& device, std::size_t count,
                                      const std::vector<HostBlock>& blocks) {
  std::size_t most = 0;
  for (const HostBlock& block : blocks) most = std::max(most, block.payload.size());
  auto slots = allocate(device, count, most);
  if (!slots) return slots;
  std::vector<std::byte> image(blocks.size() * slots->slot_bytes_);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    write_block(blocks[i], image.data() + i * slots->slot_bytes_);
  }
  const gpu::DeviceAddress begin = slots->bytes_.address();
  auto done = device.upload(begin, image);
  if (done) done = device.tile(begin, image.size(), slots->bytes_.bytes());
  if (!done) return tl::unexpected(done.error());
  return slots;
}

Result<bool> BlockSlots::holds(std::size_t i, const HostBlock& block) const {
  std::vector<std::byte> expected(block.bytes());
  write_block(block, expected.data());
  // A block that is too long differs from all that a slot can hold.
  if (expected.size() > slot_bytes_) return false;
  std::vector<std::byte> seen(expected.size());
  auto done = device_->download(seen, bytes_.address() + i * slot_bytes_);
  if (!done) return tl::unexpected(done.error());
  return same_bits(seen, expected);
}

}  // namespace tern::bench
