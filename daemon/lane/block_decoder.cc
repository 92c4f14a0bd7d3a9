#include "daemon/lane/block_decoder.h"

#include <algorithm>

#include "codec/accumulate.h"
#include "codec/codec.h"

namespace tern::daemon {

using collective::OpId;
using wire::CodecId;

namespace {

constexpr const char* kMustBeExact = "a lossy block for an operation that must be exact";

bool is_f32_inside(DType type) noexcept {
  return codec::accumulator_bytes(type) == sizeof(float) && dtype_is_float(type);
}

const char* text_of(codec::DecodeStatus status) noexcept {
  return status == codec::DecodeStatus::ok ? nullptr : codec::decode_status_name(status).data();
}

}  // namespace

BlockDecoder::Block BlockDecoder::read(const BlockRequest& request,
                                       std::span<const std::byte> bytes) const {
  Block block;
  const auto error = wire::parse_block_header(bytes, block.header);
  if (error != wire::BlockError::none) {
    block.problem = wire::block_error_text(error);
    return block;
  }
  block.bytes = bytes;
  block.payload = bytes.subspan(wire::kBlockHeaderBytes);
  if (block.header.elements != blocks_.elements(request.op, request.number) ||
      block.header.payload_bytes != block.payload.size()) {
    block.problem = "the block's sizes differ from the chunk's";
  }
  return block;
}

const char* BlockDecoder::objection_to_elements(const BlockRequest& request,
                                                const wire::BlockHeader& header) const {
  const bool raw = is(header, CodecId::raw);
  const std::size_t bytes =
      blocks_.elements(request.op, request.number) * dtype_bytes(blocks_.dtype(request.op));
  if (header.dtype != static_cast<std::uint8_t>(blocks_.dtype(request.op)) ||
      (raw && header.payload_bytes != bytes)) {
    return raw ? "a raw block of another dtype" : "a block of another dtype";
  }
  return nullptr;
}

const char* BlockDecoder::objection_to(const BlockRequest& request,
                                       const wire::BlockHeader& header) const {
  if (is(header, CodecId::raw) || is(header, CodecId::lossless)) {
    return objection_to_elements(request, header);
  }
  if (is(header, CodecId::xordelta)) return "a difference to a value that nobody keeps";
  const TensorState* const tensor = blocks_.tensor(request.op);
  const Reduction how = blocks_.reduction(request.op);
  if (tensor == nullptr || tensor->exempt || (how != Reduction::sum && how != Reduction::average)) {
    return kMustBeExact;
  }
  return objection_to_lossy(request.op);
}

const char* BlockDecoder::objection_to_lossy(OpId op) const {
  // Shifts are kept for the chunks of an all_reduce.
  const TensorState* const tensor = blocks_.tensor(op);
  if (tensor != nullptr && tensor->codec.keeps_shifts() && blocks_.op(op).plan->has_one_leg()) {
    return kMustBeExact;
  }
  const auto role = static_cast<Role>(blocks_.op(op).announced_first.role);
  const plan::Plan& plan = *blocks_.op(op).plan;
  const bool asked = plan.loses_without_memory &&
                     (blocks_.op(op).announced_first.flags & wire::kAnnounceLossy) != 0;
  const bool may = (asked || plan.may_lose_of(role)) && is_f32_inside(blocks_.dtype(op));
  return may ? nullptr : kMustBeExact;
}

void BlockDecoder::note_use_by(OpId op, const wire::BlockHeader& header) {
  if (!is(header, CodecId::raw) && !is(header, CodecId::lossless)) note_use(op);
}

void BlockDecoder::note_use(OpId op) {
  TensorState* const tensor = blocks_.tensor(op);
  const bool remembers = tensor != nullptr && codec::needs_residual(tensor->declared.recipe);
  if (remembers && tensor->memory_use.kind() == 0) tensor->memory_use.take(user_of(blocks_.op(op)));
}

void BlockDecoder::note(const BlockRequest& request, const Block& block, std::uint64_t begin_ns) {
  const std::uint64_t end = blocks_.now_ns();
  blocks_.add_decode(request.op, end - begin_ns);
  blocks_.trace(TraceKind::decode, request, block.header, {begin_ns, end});
}

// ---- Contributions ------------------------------------------------------------------------------

BlockCompletion BlockDecoder::begin(const BlockRequest& request) {
  values_.sum(request.op, blocks_.part(request.op, request.number), host_bytes(request.sum).data());
  return {};
}

BlockCompletion BlockDecoder::add(const BlockRequest& request) {
  const OpId op = request.op;
  const ChunkPart part = blocks_.part(op, request.number);
  const std::byte* own = nullptr;  // what the sum begins with; else it has begun
  if (request.verb == BlockVerb::begin_add) {
    if (values_.is_plain(op)) {
      own = values_.plain(op, part);
    } else {
      values_.sum(op, part, host_bytes(request.sum).data());
    }
  }
  BlockCompletion done;
  const Block block = read(request, host_bytes(request.block));
  done.problem = block.problem;
  if (done.problem != nullptr) return done;
  const std::uint64_t begin = blocks_.now_ns();
  done.problem = add_block(request, block, {host_bytes(request.sum), own});
  if (done.problem != nullptr) return done;
  done.work_ns = blocks_.now_ns() - begin;
  blocks_.add_decode(op, done.work_ns);
  blocks_.trace(TraceKind::decode, request, block.header, {begin, begin + done.work_ns});
  return done;
}

const char* BlockDecoder::add_block(const BlockRequest& request, const Block& block,
                                    const Sum& sum) {
  if (is(block, CodecId::raw)) {
    if (const char* problem = objection_to_elements(request, block.header)) return problem;
    add_elements(request, block.payload.data(), sum);
    return nullptr;
  }
  if (is(block, CodecId::lossless)) {
    if (const char* problem = objection_to_elements(request, block.header)) return problem;
    const auto elements = blocks_.scratch(1).first(
        blocks_.bytes(request.op, blocks_.part(request.op, request.number)));
    const auto status =
        codec::decode_lossless({block.header, block.payload}, {}, elements, blocks_.workspace());
    if (status != codec::DecodeStatus::ok) return text_of(status);
    add_elements(request, elements.data(), sum);
    return nullptr;
  }
  return add_lossy(request, block, sum);
}

void BlockDecoder::add_elements(const BlockRequest& request, const std::byte* elements,
                                const Sum& sum) {
  const OpId op = request.op;
  const std::uint32_t count = blocks_.part(op, request.number).elements;
  const DType type = blocks_.dtype(op);
  std::byte* const out = sum.bytes.data();
  if (sum.own != nullptr) {
    codec::accumulate_first(blocks_.reduction(op), {type, sum.own, count}, elements, out);
  } else if (sum.empty) {
    codec::accumulate_begin({type, elements, count}, 1.0f, out);
  } else {
    codec::accumulate(blocks_.reduction(op), {type, elements, count}, 1.0f, out);
  }
}

const char* BlockDecoder::add_lossy(const BlockRequest& request, const Block& block,
                                    const Sum& into) {
  const OpId op = request.op;
  const Reduction how = blocks_.reduction(op);
  if (how != Reduction::sum && how != Reduction::average) return kMustBeExact;
  if (const char* problem = objection_to_lossy(op)) return problem;
  TensorState* const tensor = blocks_.tensor(op);
  if (tensor == nullptr || tensor->exempt) return kMustBeExact;
  note_use(op);
  const std::uint32_t elements = blocks_.part(op, request.number).elements;
  const std::span<float> sum{as_floats(into.bytes.data()), elements};
  const codec::BlockView view{block.header, block.payload};
  const bool shifted = tensor->codec.keeps_shifts();
  if (into.own != nullptr) {
    if (!shifted && blocks_.dtype(op) == DType::f32) {
      return text_of(codec::decode_add_first(view, into.own, sum, blocks_.workspace()));
    }
    codec::accumulate_begin({blocks_.dtype(op), into.own, elements}, 1.0f, sum.data());
  }
  if (into.empty) std::fill(sum.begin(), sum.end(), 0.0f);
  if (!shifted) return text_of(codec::decode_add(view, sum, blocks_.workspace()));
  const std::span<float> values = blocks_.scratch_floats(1, elements);
  if (const char* problem = decode_lossy(request, block, values)) return problem;
  codec::accumulate(Reduction::sum, {DType::f32, blocks_.scratch(1).data(), elements}, 1.0f,
                    sum.data());
  return nullptr;
}

// ---- Results ------------------------------------------------------------------------------------

BlockCompletion BlockDecoder::deliver(const BlockRequest& request) {
  BlockCompletion done;
  if (request.in_place) {
    const auto error = wire::parse_block_header(host_bytes(request.block), done.header);
    const ChunkPart part = blocks_.result_part(request.op, request.number);
    const bool sound = error == wire::BlockError::none &&
                       done.header.codec == static_cast<std::uint8_t>(CodecId::raw) &&
                       done.header.elements == part.elements &&
                       done.header.payload_bytes == blocks_.bytes(request.op, part) &&
                       done.header.dtype == static_cast<std::uint8_t>(blocks_.dtype(request.op));
    if (sound) {
      values_.copy_to_other_ranks(request.op, part);
    } else {
      done.problem = "the block is not what its frame says";
    }
    return done;
  }
  const Block block = read(request, host_bytes(request.block));
  done.header = block.header;
  done.problem = block.problem != nullptr ? block.problem : deliver_block(request, block);
  return done;
}

const char* BlockDecoder::deliver_own(const BlockRequest& request,
                                      std::span<const std::byte> bytes) {
  BlockRequest own = request;
  own.node = blocks_.self();
  const Block block = read(own, bytes);
  return block.problem != nullptr ? block.problem : deliver_block(own, block);
}

const char* BlockDecoder::deliver_block(const BlockRequest& request, const Block& block) {
  const OpId op = request.op;
  const DType type = blocks_.dtype(op);
  const ChunkPart part = blocks_.result_part(op, request.number);
  const std::uint64_t begin = blocks_.now_ns();
  if (blocks_.slots(op) != nullptr) {
    // Whoever gets it decodes it.
    if (const char* problem = objection_to(request, block.header)) return problem;
    note_use_by(op, block.header);
    if (values_.deliver_block(op, part, block.bytes)) {
      note(request, block, begin);
      return nullptr;
    }
  }
  if (is(block, CodecId::raw)) {
    if (const char* problem = objection_to_elements(request, block.header)) return problem;
    values_.deliver(op, part, block.payload.data());
  } else if (is(block, CodecId::lossless) || is(block, CodecId::xordelta)) {
    if (const char* problem = objection_to_elements(request, block.header)) return problem;
    const std::span<std::byte> out{values_.output(op, part), blocks_.bytes(op, part)};
    if (const char* problem = decode_lossless(request, block, out)) return problem;
    values_.copy_to_other_ranks(op, part);
  } else {
    if (const char* problem = objection_to_lossy(op)) return problem;
    note_use(op);
    const bool direct = type == DType::f32;
    const std::span<float> out{
        as_floats(direct ? values_.output(op, part) : blocks_.scratch(1).data()), part.elements};
    if (const char* problem = decode_lossy(request, block, out)) return problem;
    if (direct) {
      values_.copy_to_other_ranks(op, part);
    } else {
      values_.deliver_floats(op, part, out.data());
    }
  }
  note(request, block, begin);
  return nullptr;
}

// The values that a lossy block stands for.
const char* BlockDecoder::decode_lossy(const BlockRequest& request, const Block& block,
                                       std::span<float> out) {
  TensorState* const tensor = blocks_.tensor(request.op);
  if (tensor != nullptr && tensor->exempt) return "a lossy block for an exempt tensor";
  if (tensor == nullptr || !tensor->codec.keeps_shifts()) {
    return text_of(codec::decode({block.header, block.payload}, out, blocks_.workspace()));
  }
  const auto stream = tensor->codec.stream(request.node, request.number,
                                           blocks_.part(request.op, request.number).begin,
                                           blocks_.encoding(request.op).state_scale);
  blocks_.tensor_lane(request.op).streams.received = true;
  return text_of(
      codec::decode_shifted({block.header, block.payload}, stream, out, blocks_.workspace()));
}

const char* BlockDecoder::decode_lossless(const BlockRequest& request, const Block& block,
                                          std::span<std::byte> out) {
  std::span<std::byte> last;
  TensorState* const tensor = blocks_.tensor(request.op);
  const bool delta = is(block, CodecId::xordelta);
  if (delta) {
    if (tensor == nullptr || !tensor->codec.keeps_last_bytes() ||
        blocks_.op(request.op).plan->parts != plan::Parts::whole) {
      return "a difference to a value that nobody keeps";
    }
    const ChunkPart part = blocks_.part(request.op, request.number);
    last = tensor->codec.received_bytes(request.node, part.begin, part.elements);
    if (block.header.stream_step == 0) {
      std::fill(last.begin(), last.end(), std::byte{0});
    } else if (block.header.stream_step !=
               tensor->codec.receiver_step(request.node, request.number)) {
      return text_of(codec::DecodeStatus::state_gap);
    }
  }
  const auto status =
      codec::decode_lossless({block.header, block.payload}, last, out, blocks_.workspace());
  if (status != codec::DecodeStatus::ok) return text_of(status);
  if (delta) {
    tensor->codec.receiver_step(request.node, request.number) = block.header.stream_step + 1;
    blocks_.tensor_lane(request.op).streams.received = true;
  }
  return nullptr;
}

// ---- Eager values -------------------------------------------------------------------------------

BlockCompletion BlockDecoder::reduce(const BlockRequest& request) {
  const OpId op = request.op;
  const collective::Op& about = blocks_.op(op);
  if (blocks_.whole(op).elements == 0) return {};
  const collective::GroupShape& group = blocks_.ops().shape();
  if (about.plan->reduces()) {
    std::uint64_t before = 0;
    BlockCompletion done;
    collective::for_each_eager_piece(about, {blocks_.self(), blocks_.self()}, group,
                                     [&](const collective::EagerPiece& piece) {
                                       if (done.problem != nullptr) return;
                                       done = add_eager(op, piece, before);
                                       before += piece.sent.count;
                                     });
    return done;
  }
  for (std::uint32_t node = 0; node < group.nodes(); ++node) deliver_eager(op, node);
  return {};
}

// What a node has for this one.
void BlockDecoder::deliver_eager(OpId op, std::uint32_t node) {
  std::size_t before = 0;
  const auto deliver = [&](const collective::EagerPiece& piece) {
    const ChunkPart part{piece.sent.begin, static_cast<std::uint32_t>(piece.sent.count)};
    const std::byte* const values = node == blocks_.self()
                                        ? values_.moved_input(op, part)
                                        : host_bytes(eager_.kept(op, node)).data() + before;
    values_.deliver(op, {piece.result_begin, part.elements}, values);
    before += blocks_.bytes(op, part);
  };
  collective::for_each_eager_piece(blocks_.op(op), {node, blocks_.self()}, blocks_.ops().shape(),
                                   deliver);
}

// `before`: elements of other pieces, where what other nodes have sent holds them all.
BlockCompletion BlockDecoder::add_eager(OpId op, const collective::EagerPiece& piece,
                                        std::uint64_t before) {
  const DType type = blocks_.dtype(op);
  const Reduction how = blocks_.reduction(op);
  const ChunkPart part{piece.sent.begin, static_cast<std::uint32_t>(piece.sent.count)};
  std::byte* const sum = blocks_.scratch(0).data();
  // The same order on every node.
  for (std::uint32_t node = 0; node < blocks_.ops().nodes(); ++node) {
    const Operand kept = eager_.kept(op, node);
    if (eager_.keeps_block(op, node)) {
      BlockCompletion done;
      done.node = node;
      done.problem = add_eager_block(op, node, {blocks_.scratch(0), nullptr, node == 0});
      if (done.problem != nullptr) return done;
      continue;
    }
    // This node's own is kept as a whole.
    const std::uint64_t place = node == blocks_.self() ? part.begin : before;
    const std::byte* const source = kept.empty()
                                        ? values_.plain(op, part)
                                        : host_bytes(kept).data() + place * dtype_bytes(type);
    if (node == 0) {
      codec::accumulate_begin({type, source, part.elements}, 1.0f, sum);
    } else {
      codec::accumulate(how, {type, source, part.elements}, 1.0f, sum);
    }
  }
  codec::accumulate_finish(how, sum, blocks_.identity().size,
                           {type, values_.output(op, part), part.elements});
  values_.copy_to_other_ranks(op, part);
  return {};
}

const char* BlockDecoder::add_eager_block(OpId op, std::uint32_t node, const Sum& sum) {
  BlockRequest request;
  request.verb = BlockVerb::add;
  request.op = op;
  request.node = node;
  request.block = eager_.kept(op, node);
  const std::uint64_t begin = blocks_.now_ns();
  const Block block = read(request, host_bytes(request.block));
  if (block.problem != nullptr) return block.problem;
  if (const char* problem = add_block(request, block, sum)) return problem;
  note(request, block, begin);
  return nullptr;
}

}  // namespace tern::daemon
