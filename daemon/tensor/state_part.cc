#include "daemon/tensor/state_part.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "wire/crc32c.h"

namespace tern::daemon {
namespace {

constexpr std::uint16_t kVersion = 1;
// Of parts that have no owners, which a reader of version 1 would take for others.
constexpr std::uint16_t kVersionWithoutOwners = 2;
constexpr std::uint16_t kNobodyOwns = 1;  // StatePartHeader::root
constexpr std::uint32_t kMaxParts = 64;   // as many as a group has nodes

template <typename T>
void put(std::byte*& at, const T& value) noexcept {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <typename T>
T take(const std::byte*& at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

void put_floats(std::byte*& at, const float* values, std::uint64_t count) noexcept {
  std::memcpy(at, values, count * sizeof(float));
  at += count * sizeof(float);
}

bool all_finite(const std::byte* at, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(take<float>(at))) return false;
  }
  return true;
}

float float_at(const std::byte* floats, std::uint64_t index) noexcept {
  const std::byte* at = floats + index * sizeof(float);
  return take<float>(at);
}

// The part's header, or nothing if these bytes do not begin with one that fits into them.
bool read_header(std::span<const std::byte> bytes, StatePartHeader& header) noexcept {
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  const bool knows_version = header.version == kVersion || header.version == kVersionWithoutOwners;
  return header.magic == kStatePartMagic && knows_version && header.bytes >= sizeof header &&
         header.bytes <= bytes.size() && header.nodes >= 1 && header.node < header.nodes &&
         header.chunk_elements >= 1;
}

}  // namespace

StatePart::StatePart(codec::Memory memory, float alpha, const CodecState::Shape& shape,
                     std::uint64_t spread) {
  header_.magic = kStatePartMagic;
  header_.version = kVersion;
  header_.memory = static_cast<std::uint8_t>(memory);
  header_.dtype = static_cast<std::uint8_t>(shape.dtype);
  header_.node = shape.self;
  header_.nodes = shape.nodes;
  header_.count = shape.count;
  header_.chunk_elements = shape.chunk_elements;
  header_.spread = spread % shape.nodes;
  header_.alpha_bits = std::bit_cast<std::uint32_t>(alpha);
  if (shape.eager) {
    header_.version = kVersionWithoutOwners;
    header_.root = kNobodyOwns;
  }
  header_.bytes = sizeof(StatePartHeader);
  if (memory == codec::Memory::none) return;
  header_.bytes = record_offset((shape.count + shape.chunk_elements - 1) / shape.chunk_elements);
}

void StatePart::belong_to(const OneLegUse& use) noexcept {
  if (use.kind == 0) return;
  header_.version = kVersion;
  header_.kind = use.kind;
  header_.counts_crc = use.counts_crc;
  header_.placement = use.placement;
  header_.root = static_cast<std::uint16_t>(use.root + 1);
  if (use.counts_crc == 0) return;
  ranks_ = use.ranks;
  header_.bytes += std::uint64_t{ranks_} * sizeof(std::uint64_t);
}

bool StatePart::shifts() const noexcept {
  const auto memory = static_cast<codec::Memory>(header_.memory);
  return memory == codec::Memory::diana || memory == codec::Memory::ef21;
}

std::uint64_t StatePart::chunk_size(std::uint64_t chunk) const noexcept {
  return std::min(header_.chunk_elements, header_.count - chunk_begin(chunk));
}

std::vector<std::uint32_t> StatePart::senders(std::uint64_t chunk) const {
  std::vector<std::uint32_t> nodes;
  if (!shifts()) return nodes;
  if (owner(chunk) != header_.node) return {owner(chunk)};
  for (std::uint32_t node = 0; node < header_.nodes; ++node) {
    if (node != header_.node) nodes.push_back(node);
  }
  return nodes;
}

std::uint64_t StatePart::record_offset(std::uint64_t chunk) const noexcept {
  const std::uint64_t floats = std::min(chunk_begin(chunk), header_.count) * sizeof(float);
  if (!shifts()) return sizeof(StatePartHeader) + floats;
  if (chunk == 0) return sizeof(StatePartHeader);
  // All chunks before the last one have the same size; one that is owned has a stream of every
  // node, another one two.
  const std::uint64_t first_owned = (header_.node + header_.nodes - header_.spread) % header_.nodes;
  const std::uint64_t before = chunk - 1;
  const std::uint64_t owned =
      before > first_owned ? (before - first_owned - 1) / header_.nodes + 1 : 0;
  const auto record = [](std::uint64_t streams, std::uint64_t elements) {
    return streams * (sizeof(std::uint64_t) + elements * sizeof(float));
  };
  return sizeof(StatePartHeader) + record(streams_of(before), chunk_size(before)) +
         record(owned * header_.nodes + (before - owned) * 2, header_.chunk_elements);
}

StatePartHeader StatePart::first_of_one_leg(std::span<const std::byte> parts) noexcept {
  StatePartHeader part{};
  for (std::uint32_t i = 0; i < kMaxParts && read_header(parts, part); ++i) {
    if (part.has_one_leg()) return part;
    parts = parts.subspan(part.bytes);
  }
  return {};
}

bool StatePart::are_of_averages(std::span<const std::byte> parts) noexcept {
  StatePartHeader part{};
  for (std::uint32_t i = 0; i < kMaxParts && read_header(parts, part); ++i) {
    const bool has_owners = !part.has_one_leg() && part.root != kNobodyOwns;
    if (has_owners && std::bit_cast<float>(part.alpha_bits) > 1.0f) return true;
    parts = parts.subspan(part.bytes);
  }
  return false;
}

bool StatePart::is_of_this_use(const StatePartHeader& part, bool beside_others) const noexcept {
  if (!part.has_one_leg() && header_.has_one_leg()) return beside_others && part.counts_crc == 0;
  return part.kind == header_.kind && part.counts_crc == header_.counts_crc;
}

// As this node would write the header if the part were its own.
StatePartHeader StatePart::own_header_as(const StatePartHeader& part) const noexcept {
  StatePartHeader mine = header_;
  mine.dtype = part.dtype;
  if (has_residuals()) mine.alpha_bits = part.alpha_bits;
  if (header_.has_one_leg()) {  // residuals of elements, whatever the chunks
    mine.version = part.version;
    mine.root = part.root;
    mine.chunk_elements = part.chunk_elements;
    mine.spread = part.spread;
  }
  if (!part.has_one_leg()) {
    mine.kind = 0;
    mine.placement = 0;
    mine.counts_crc = 0;
    // It has no counts.
    if (ranks_ != 0) mine.bytes = residuals_end();
  }
  return mine;
}

Result<void> StatePart::check_tensor(const StatePartHeader& part, bool some_have_one_leg) const {
  if (part.memory != header_.memory || part.count != header_.count) {
    return fail(Errc::state_mismatch, "the part is of " + std::to_string(part.count) +
                                          " elements with memory " + std::to_string(part.memory) +
                                          ", the tensor of " + std::to_string(header_.count) +
                                          " with memory " + std::to_string(header_.memory));
  }
  if (!is_of_this_use(part, some_have_one_leg)) {
    return fail(Errc::state_mismatch,
                "the part is of another kind of operation than the tensor's, or of other counts");
  }
  return {};
}

// What refold_chunk reads must be there.
Result<void> StatePart::check_length(const StatePartHeader& part, std::uint64_t expected) const {
  if (shifts() || header_.memory == 0 || part.bytes == expected) return {};
  if (ranks_ != 0 && part.has_one_leg()) {
    return fail(Errc::state_mismatch, "the part has the counts of another number of ranks than " +
                                          std::to_string(ranks_));
  }
  return fail(Errc::invalid_argument, "a part is not as long as its header says");
}

// Parts of another layout, of so many nodes; those of these bits are there.
Result<void> StatePart::check_foldable(std::uint32_t nodes, std::uint64_t seen) const {
  if (header_.memory == 0) return {};
  if (shifts()) {
    return fail(Errc::state_mismatch,
                "a shift belongs to its nodes and owners; this state is of another layout (" +
                    std::to_string(nodes) + " nodes, now " + std::to_string(header_.nodes) +
                    "). Start from zero: do not import it");
  }
  // A foreign number: not every one may be shifted by.
  const auto all_of = [](std::uint32_t count) {
    return count == kMaxParts ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  };
  if (nodes > kMaxParts || seen != all_of(nodes)) {
    return fail(Errc::invalid_argument,
                "to fold error feedback into another layout the parts of all " +
                    std::to_string(nodes) + " nodes are needed");
  }
  return {};
}

Result<void> StatePart::check(std::span<const std::byte> parts, bool& same_layout,
                              std::uint64_t& own) const {
  same_layout = false;
  const bool some_have_one_leg = first_of_one_leg(parts).has_one_leg();
  bool is_placed_alike = true;
  std::uint64_t seen = 0;
  std::uint32_t nodes = 0;
  std::size_t at = 0;
  while (at < parts.size()) {
    StatePartHeader part{};
    if (!read_header(parts.subspan(at), part)) {
      return fail(Errc::invalid_argument, "these bytes are no part that an export has written");
    }
    if (Result<void> sound = check_tensor(part, some_have_one_leg); !sound) return sound;
    const bool first = nodes == 0;
    if (!first && (part.nodes != nodes || part.node >= kMaxParts)) {
      return fail(Errc::invalid_argument, "the parts are of different exports");
    }
    nodes = part.nodes;
    const std::uint64_t bit = std::uint64_t{1} << (part.node % kMaxParts);
    if ((seen & bit) != 0) {
      return fail(Errc::invalid_argument,
                  "the part of node " + std::to_string(part.node) + " is given twice");
    }
    seen |= bit;
    if (header_.has_one_leg() && part.has_one_leg()) {
      is_placed_alike = is_placed_alike && part.placement == header_.placement;
    }
    const StatePartHeader mine = own_header_as(part);
    if (std::memcmp(&part, &mine, sizeof part) == 0) {
      same_layout = true;
      own = at;
    }
    if (Result<void> sound = check_length(part, mine.bytes); !sound) return sound;
    at += part.bytes;
  }
  if (nodes == 0) return fail(Errc::invalid_argument, "there is no part");
  same_layout = same_layout && is_placed_alike;
  return same_layout ? Result<void>() : check_foldable(nodes, seen);
}

void StatePart::export_chunk(CodecState& state, std::uint32_t chunk,
                             std::span<std::byte> part) const {
  std::byte* at = part.data() + record_offset(chunk);
  const std::uint64_t begin = chunk_begin(chunk);
  const std::uint64_t count = chunk_size(chunk);
  const auto nodes = senders(chunk);
  if (shifts()) {
    put(at, state.sender_step(chunk));
    for (const std::uint32_t node : nodes) put(at, state.receiver_step(node, chunk));
  }
  put_floats(at, state.sender(begin), count);
  for (const std::uint32_t node : nodes) {
    put_floats(at, state.stream(node, chunk, begin, 1.0f).shift, count);
  }
}

bool StatePart::import_chunk(CodecState& state, std::uint32_t chunk,
                             std::span<const std::byte> part) const {
  const std::byte* at = part.data() + record_offset(chunk);
  const std::uint64_t begin = chunk_begin(chunk);
  const std::uint64_t count = chunk_size(chunk);
  const auto nodes = senders(chunk);
  const std::size_t steps = shifts() ? 1 + nodes.size() : 0;
  // A copy of our own: the client's memory may change between the check and the use.
  const std::uint64_t all = (1 + nodes.size()) * count;
  std::vector<std::byte> record(steps * sizeof(std::uint64_t) + all * sizeof(float));
  std::memcpy(record.data(), at, record.size());
  at = record.data();
  if (!all_finite(at + steps * sizeof(std::uint64_t), all)) return false;
  if (shifts()) {
    state.sender_step(chunk) = take<std::uint64_t>(at);
    for (const std::uint32_t node : nodes) {
      state.receiver_step(node, chunk) = take<std::uint64_t>(at);
    }
  }
  std::memcpy(state.sender(begin), at, count * sizeof(float));
  at += count * sizeof(float);
  for (const std::uint32_t node : nodes) {
    std::memcpy(state.stream(node, chunk, begin, 1.0f).shift, at, count * sizeof(float));
    at += count * sizeof(float);
  }
  return true;
}

void StatePart::export_elements(const CodecState& state, Elements elements,
                                std::span<std::byte> part) const {
  std::byte* at = part.data() + sizeof(StatePartHeader) + elements.begin * sizeof(float);
  put_floats(at, state.sender(elements.begin), elements.count);
}

bool StatePart::import_elements(const CodecState& state, Elements elements,
                                std::span<const std::byte> part) const {
  const std::byte* const at =
      part.data() + sizeof(StatePartHeader) + elements.begin * sizeof(float);
  // A copy of our own, as above.
  std::vector<std::byte> record(elements.count * sizeof(float));
  std::memcpy(record.data(), at, record.size());
  if (!all_finite(record.data(), elements.count)) return false;
  std::memcpy(state.sender(elements.begin), record.data(), record.size());
  return true;
}

bool StatePart::refold_elements(const CodecState& state, Elements elements,
                                std::span<const std::byte> parts, bool takes) const {
  std::vector<float> folded(elements.count, 0.0f);
  StatePartHeader part{};
  for (std::size_t at = 0; takes && at < parts.size(); at += part.bytes) {
    if (!read_header(parts.subspan(at), part)) return false;  // they changed since check()
    if (part.bytes < residuals_end()) return false;
    const std::byte* const floats = parts.data() + at + sizeof part;
    for (std::uint64_t i = 0; i < elements.count; ++i) {
      folded[i] += float_at(floats, elements.begin + i);
    }
  }
  if (!std::all_of(folded.begin(), folded.end(), [](float v) { return std::isfinite(v); })) {
    return false;
  }
  std::copy(folded.begin(), folded.end(), state.sender(elements.begin));
  return true;
}

void StatePart::write_counts(std::span<const std::uint64_t> share_begins,
                             std::span<std::byte> part) const {
  std::byte* at = part.data() + residuals_end();
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    put(at, share_begins[rank + 1] - share_begins[rank]);
  }
}

Result<std::vector<std::uint64_t>> StatePart::read_counts(std::span<const std::byte> parts) const {
  std::vector<std::uint64_t> begins;  // and where the last one ends
  if (ranks_ == 0) return begins;
  // Parts of no operation have none. Their headers are a client's, which may change them meanwhile.
  StatePartHeader part{};
  bool found = false;
  for (std::uint32_t i = 0; i < kMaxParts && !found && read_header(parts, part); ++i) {
    found = part.has_one_leg();
    if (!found) parts = parts.subspan(part.bytes);
  }
  if (!found || parts.size() < header_.bytes) {
    return fail(Errc::invalid_argument, "no part has the counts that its header names");
  }
  std::vector<std::uint64_t> counts(ranks_);
  std::memcpy(counts.data(), parts.data() + residuals_end(), counts.size() * sizeof(counts[0]));
  const std::uint32_t crc = wire::crc32c(std::as_bytes(std::span(counts)));
  bool sound = std::max(crc, std::uint32_t{1}) == header_.counts_crc;
  begins.push_back(0);
  for (const std::uint64_t count : counts) {
    sound = sound && count <= header_.count - begins.back();
    begins.push_back(sound ? begins.back() + count : 0);
  }
  if (sound && begins.back() == header_.count) return begins;
  return fail(Errc::invalid_argument, "the counts of a part are not those that its header names");
}

bool StatePart::refold_chunk(CodecState& state, std::uint32_t chunk,
                             std::span<const std::byte> parts) const {
  const std::uint64_t begin = chunk_begin(chunk);
  const std::uint64_t count = chunk_size(chunk);
  const bool owned = header_.root != kNobodyOwns && owner(chunk) == header_.node;
  const bool contributor = (owner(chunk) + 1) % header_.nodes == header_.node;
  std::vector<float> folded(count, 0.0f);
  for (std::size_t at = 0; at < parts.size();) {
    StatePartHeader part{};
    if (!read_header(parts.subspan(at), part)) return false;  // they changed since check()
    if (part.bytes != sizeof part + header_.count * sizeof(float)) return false;
    const std::byte* const floats = parts.data() + at + sizeof part;
    const auto worth = std::bit_cast<float>(part.alpha_bits);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t old_chunk = (begin + i) / part.chunk_elements;
      const bool was_owned =
          part.root != kNobodyOwns && (old_chunk + part.spread) % part.nodes == part.node;
      const float left = float_at(floats, begin + i);
      if (was_owned && header_.root == kNobodyOwns) {
        if (contributor) folded[i] += worth * left;
      } else if (was_owned ? owned : contributor) {
        folded[i] += left;
      }
    }
    at += part.bytes;
  }
  if (!std::all_of(folded.begin(), folded.end(), [](float v) { return std::isfinite(v); })) {
    return false;
  }
  std::copy(folded.begin(), folded.end(), state.sender(begin));
  return true;
}

}  // namespace tern::daemon
