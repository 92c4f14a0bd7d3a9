#include "cuda/state_part.h"

#include <cstring>

#include "codec/recipe_parts.h"
#include "cuda/last_error.h"

namespace tern::cuda {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::uint32_t kMagic = 0x31505354;  // "TSP1"
constexpr std::size_t kMemoryAt = 6;          // u8, codec::Memory
constexpr std::size_t kDtypeAt = 7;           // u8

}  // namespace

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
  std::uint32_t magic = 0;
  if (bytes >= kHeaderBytes) std::memcpy(&magic, part.bytes_.data(), sizeof magic);
  if (magic != kMagic || bytes != part.bytes_.size()) {
    return fail(Errc::protocol_error, "the daemon's part of the tensor's state is none");
  }
  part.dtype_ = static_cast<DType>(part.bytes_[kDtypeAt]);
  part.has_residual_ = part.bytes_[kMemoryAt] == static_cast<std::byte>(codec::Memory::ef) &&
                       bytes == kHeaderBytes + count * sizeof(float);
  return part;
}

std::span<float> StatePart::floats() noexcept {
  if (!has_residual_) return {};
  return {static_cast<float*>(static_cast<void*>(bytes_.data() + kHeaderBytes)), count_};
}

}  // namespace tern::cuda
