#include "daemon/lane/pass_blocks.h"

#include <cstring>

#include "base/bump.h"
#include "base/check.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "codec/draw_key.h"
#include "wire/crc32c.h"

namespace tern::daemon {

using collective::Envelope;

namespace {

// A send has no tensor and no number of its use, so its draws depend on what it sends: other values
// have other draws, and a run with the same values has the same
// (docs/adr/0039-a-send-draws-from-its-values.md).
std::uint64_t draws_of(const Envelope& envelope, const BlockRequest& request,
                       std::uint64_t seed) noexcept {
  return codec::DrawKey{.seed = seed,
                        .tensor = std::uint64_t{envelope.destination} << 32 | envelope.tag,
                        .use = wire::crc32c(host_bytes(request.sum)),
                        .node = envelope.source,
                        .broadcast_leg = true,
                        .chunk = request.offset}
      .mixed();
}

}  // namespace

BlockCompletion PassBlocks::perform(const BlockRequest& request) {
  TERN_CHECK(request.verb == BlockVerb::encode || request.verb == BlockVerb::deliver);
  const std::uint64_t begin_ns = lane_->clock.now_ns();
  BlockCompletion completion =
      request.verb == BlockVerb::encode ? encode(request) : deliver(request);
  completion.work_ns = lane_->clock.now_ns() - begin_ns;
  lane_->codec.spent.add(completion.work_ns);
  return completion;
}

BlockCompletion PassBlocks::encode(const BlockRequest& request) {
  const Envelope& envelope = mailbox_.pass(request.op).what.envelope;
  const DType type = envelope.dtype;
  const std::span<const std::byte> elements = host_bytes(request.sum);
  const std::span<std::byte> block = host_bytes(request.block);
  const std::span<std::byte> payload = block.subspan(wire::kBlockHeaderBytes);
  BlockCompletion completion;
  completion.form = BlockForm::encoded;
  wire::BlockHeader header;
  if (request.recipe != nullptr) {
    codec::EncodeRequest what;
    what.input = floats_of(elements, type);
    what.delivered = type;
    what.key = draws_of(envelope, request, seed_);
    const auto encoded =
        codec::encode(*request.recipe, what, {payload, header}, lane_->codec.workspace);
    completion.nonfinite = encoded.nonfinite;
    if (completion.nonfinite) bump(lane_->counters->nonfinite_chunks, std::uint64_t{1});
  }
  if (request.recipe == nullptr || completion.nonfinite) {
    const auto count = static_cast<std::uint32_t>(elements.size() / dtype_bytes(type));
    header = codec::raw_block_header(type, count, completion.nonfinite, 0);
    std::memcpy(payload.data(), elements.data(), elements.size());
  }
  wire::write_block_header(header, block.first<wire::kBlockHeaderBytes>());
  completion.bytes = static_cast<std::uint32_t>(wire::kBlockHeaderBytes) + header.payload_bytes;
  return completion;
}

std::span<const float> PassBlocks::floats_of(std::span<const std::byte> elements,
                                             DType type) noexcept {
  const std::size_t count = elements.size() / dtype_bytes(type);
  if (type == DType::f32) return {as_floats(elements.data()), count};
  float* const wide = as_floats(lane_->codec.scratch.slab(0).data());
  codec::to_f32(type, elements.data(), count, wide);
  return {wide, count};
}

bool PassBlocks::takes(DType type) noexcept {
  return codec::accumulator_bytes(type) == sizeof(float) && dtype_is_float(type);
}

PassBlocks::Measure PassBlocks::measure(std::span<const std::byte> block, DType type,
                                        std::uint64_t room) noexcept {
  Measure measure;
  const auto error = wire::parse_block_header(block, measure.header);
  if (error != wire::BlockError::none) {
    measure.problem = wire::block_error_text(error);
    return measure;
  }
  const std::uint64_t bytes = std::uint64_t{measure.header.elements} * dtype_bytes(type);
  const bool is_whole = wire::kBlockHeaderBytes + measure.header.payload_bytes == block.size();
  if (bytes == 0 || bytes > room || !is_whole) {
    measure.problem = "the block's sizes are not those of a piece";
  } else {
    measure.bytes = bytes;
  }
  return measure;
}

BlockCompletion PassBlocks::deliver(const BlockRequest& request) {
  const DType type = mailbox_.pass(request.op).what.envelope.dtype;
  const Measure measure = PassBlocks::measure(host_bytes(request.block), type, request.sum.bytes);
  BlockCompletion completion;
  completion.header = measure.header;
  completion.problem =
      measure.problem != nullptr ? measure.problem : decode(measure.header, request, type);
  return completion;
}

// Null, or what is wrong with the block.
const char* PassBlocks::decode(const wire::BlockHeader& header, const BlockRequest& request,
                               DType type) {
  const auto payload = host_bytes(request.block).subspan(wire::kBlockHeaderBytes);
  const std::span<std::byte> room = host_bytes(request.sum);
  if (header.codec == static_cast<std::uint8_t>(wire::CodecId::raw)) {
    if (header.dtype != static_cast<std::uint8_t>(type) || payload.size() != room.size()) {
      return "a raw block of another dtype";
    }
    std::memcpy(room.data(), payload.data(), room.size());
    return nullptr;
  }
  const bool direct = type == DType::f32;
  float* const floats = as_floats(direct ? room.data() : lane_->codec.scratch.slab(1).data());
  const auto status =
      codec::decode({header, payload}, {floats, header.elements}, lane_->codec.workspace);
  if (status != codec::DecodeStatus::ok) return codec::decode_status_name(status).data();
  if (!direct) codec::from_f32(type, floats, header.elements, room.data());
  return nullptr;
}

}  // namespace tern::daemon
