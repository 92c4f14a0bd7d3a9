#include "daemon/lane/pass_blocks.h"

#include <cstring>

#include "base/bump.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "codec/draw_key.h"
#include "wire/crc32c.h"

namespace tern::daemon {

namespace {

using collective::Envelope;

// A send has no tensor and no number of its use, so its draws depend on what it sends: other values
// have other draws, and a run with the same values has the same
// (docs/adr/0039-a-send-draws-from-its-values.md).
std::uint64_t draws_of(const PassBlocks::Piece& piece, std::uint64_t seed) noexcept {
  const Envelope& envelope = piece.envelope;
  return codec::DrawKey{.seed = seed,
                        .tensor = std::uint64_t{envelope.destination} << 32 | envelope.tag,
                        .use = wire::crc32c(piece.elements),
                        .node = envelope.source,
                        .broadcast_leg = true,
                        .chunk = piece.offset}
      .mixed();
}

std::span<const float> floats_of(LaneResources& lane, const PassBlocks::Piece& piece) noexcept {
  const DType type = piece.envelope.dtype;
  const std::size_t count = piece.elements.size() / dtype_bytes(type);
  if (type == DType::f32) return {as_floats(piece.elements.data()), count};
  float* const wide = as_floats(lane.codec.scratch.slab(0).data());
  codec::to_f32(type, piece.elements.data(), count, wide);
  return {wide, count};
}

}  // namespace

std::size_t PassBlocks::encode(LaneResources& lane, const Piece& piece, const codec::Recipe* recipe,
                               std::span<std::byte> out) const {
  const DType type = piece.envelope.dtype;
  const std::span<std::byte> payload = out.subspan(wire::kBlockHeaderBytes);
  wire::BlockHeader header;
  bool nonfinite = false;
  if (recipe != nullptr) {
    codec::EncodeRequest request;
    request.input = floats_of(lane, piece);
    request.delivered = type;
    request.key = draws_of(piece, seed_);
    const auto encoded = codec::encode(*recipe, request, {payload, header}, lane.codec.workspace);
    nonfinite = encoded.nonfinite;
    if (nonfinite) bump(lane.counters->nonfinite_chunks, std::uint64_t{1});
  }
  if (recipe == nullptr || nonfinite) {
    header = codec::raw_block_header(
        type, static_cast<std::uint32_t>(piece.elements.size() / dtype_bytes(type)), nonfinite, 0);
    std::memcpy(payload.data(), piece.elements.data(), piece.elements.size());
  }
  wire::write_block_header(header, out.first<wire::kBlockHeaderBytes>());
  return wire::kBlockHeaderBytes + header.payload_bytes;
}

bool PassBlocks::takes(DType type) noexcept {
  return codec::accumulator_bytes(type) == sizeof(float) && dtype_is_float(type);
}

PassBlocks::Decoded PassBlocks::decode(LaneResources& lane, std::span<const std::byte> block,
                                       DType type, std::span<std::byte> room) {
  Decoded decoded;
  wire::BlockHeader header;
  const auto error = wire::parse_block_header(block, header);
  const std::span<const std::byte> payload = block.subspan(wire::kBlockHeaderBytes);
  const std::uint64_t bytes = std::uint64_t{header.elements} * dtype_bytes(type);
  if (error != wire::BlockError::none) {
    decoded.problem = wire::block_error_text(error);
  } else if (bytes == 0 || bytes > room.size() || header.payload_bytes != payload.size()) {
    decoded.problem = "the block's sizes are not those of a piece";
  }
  if (decoded.problem != nullptr) return decoded;
  decoded.bytes = bytes;
  if (header.codec == static_cast<std::uint8_t>(wire::CodecId::raw)) {
    if (header.dtype != static_cast<std::uint8_t>(type) || payload.size() != bytes) {
      decoded.problem = "a raw block of another dtype";
    } else {
      std::memcpy(room.data(), payload.data(), bytes);
    }
    return decoded;
  }
  const std::uint64_t begin_ns = lane.clock.now_ns();
  const bool direct = type == DType::f32;
  float* const floats = as_floats(direct ? room.data() : lane.codec.scratch.slab(1).data());
  const auto status =
      codec::decode({header, payload}, {floats, header.elements}, lane.codec.workspace);
  if (status != codec::DecodeStatus::ok) {
    decoded.problem = codec::decode_status_name(status).data();
  } else if (!direct) {
    codec::from_f32(type, floats, header.elements, room.data());
  }
  lane.codec.spent.add(lane.clock.now_ns() - begin_ns);
  return decoded;
}

}  // namespace tern::daemon
