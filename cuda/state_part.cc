#include "cuda/state_part.h"

#include <cstring>

#include "codec/recipe_parts.h"
#include "cuda/last_error.h"
#include "wire/state_part.h"

namespace tern::cuda {

Result<StatePart> StatePart::of(tern_tensor* tensor, std::uint64_t count) {
  std::uint64_t bytes = 0;
  if (const auto status = tern_tensor_state_bytes(tensor, &bytes); status != TERN_OK) {
    return tl::unexpected(error_of(status));
  }
  StatePart part;
  part.count_ = count;
  part.bytes_.resize(bytes);
  if (const auto status = tern_tensor_export_state(tensor, part.bytes_.data(), bytes, &bytes);
      status != TERN_OK) {
    return tl::unexpected(error_of(status));
  }
  wire::StatePartHeader header{};
  if (bytes >= sizeof header) std::memcpy(&header, part.bytes_.data(), sizeof header);
  if (header.magic != wire::kStatePartMagic || bytes != part.bytes_.size()) {
    return fail(Errc::protocol_error, "the daemon's part of the tensor's state is none");
  }
  part.has_residual_ = header.memory == static_cast<std::uint8_t>(codec::Memory::ef) &&
                       bytes == sizeof header + count * sizeof(float);
  return part;
}

std::span<float> StatePart::floats() noexcept {
  if (!has_residual_) return {};
  return {static_cast<float*>(static_cast<void*>(bytes_.data() + sizeof(wire::StatePartHeader))),
          count_};
}

}  // namespace tern::cuda
