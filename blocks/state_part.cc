#include "blocks/state_part.h"

#include <cstring>
#include <string>

#include "codec/recipe.h"
#include "wire/state_part.h"

namespace tern::blocks {

Result<StatePart> StatePart::of_daemon(tern_tensor* tensor) {
  std::vector<std::byte> part;
  std::uint64_t bytes = 0;
  tern_status status = tern_tensor_state_bytes(tensor, &bytes);
  if (status == TERN_OK) {
    part.resize(bytes);
    status = tern_tensor_export_state(tensor, part.data(), bytes, &bytes);
  }
  if (status != TERN_OK) return fail(static_cast<Errc>(status), tern_error_detail());
  part.resize(bytes);
  return StatePart(std::move(part));
}

std::span<float> StatePart::residual() const noexcept {
  wire::StatePartHeader header;
  if (bytes_.size() < sizeof header) return {};
  std::memcpy(&header, bytes_.data(), sizeof header);
  const std::size_t room = (bytes_.size() - sizeof header) / sizeof(float);
  if (header.magic != wire::kStatePartMagic ||
      header.memory != static_cast<std::uint8_t>(codec::Memory::ef) || header.count > room) {
    return {};
  }
  // A vector's memory is aligned to any type, and the header is a multiple of a float.
  const void* const floats = bytes_.data() + sizeof header;
  return {const_cast<float*>(static_cast<const float*>(floats)), header.count};
}

void StatePart::take(const Contributions& contributions) noexcept {
  const std::span<float> mine = residual();
  if (!mine.empty()) contributions.write_residual(mine);
}

void StatePart::give(Contributions& contributions) const {
  const std::span<float> mine = residual();
  if (!mine.empty()) contributions.read_residual(mine);
}

}  // namespace tern::blocks
