#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/recipe.h"
#include "daemon/tensor/codec_state.h"
#include "shm/sharding.h"
#include "wire/state_part.h"

namespace tern::daemon {

using wire::kStatePartMagic;
using wire::StatePartHeader;

// What of the header is about operations with one leg. They have error feedback alone, which is
// each node's own, element by element, whatever the chunks.
struct OneLegUse {
  std::uint16_t kind = 0;
  std::uint32_t counts_crc = 0;
  std::uint32_t placement = 0;
  std::uint32_t root = 0xffffffff;  // MemoryUse::root()
  std::uint32_t ranks = 0;          // of the group
};

// Where things lie in the parts of one tensor, and the copying. The lanes share it: each copies the
// records of its own chunks, so that state is only ever touched by the lane it belongs to.
class StatePart {
 public:
  // `alpha`: see the header.
  StatePart(codec::Memory memory, float alpha, const CodecState::Shape& shape,
            std::uint64_t spread);

  void belong_to(const OneLegUse& use) noexcept;

  std::uint64_t bytes() const noexcept { return header_.bytes; }
  const StatePartHeader& header() const noexcept { return header_; }
  // Error feedback, and nothing else.
  bool has_residuals() const noexcept {
    return header_.memory == static_cast<std::uint8_t>(codec::Memory::ef);
  }

  // The header of the first of these parts, of foreign bytes, that belongs to an operation with one
  // leg; all zeros: there is none. Of a node that has encoded nothing yet, as a reduce's root and
  // the receivers of a broadcast, the part belongs to none.
  static StatePartHeader first_of_one_leg(std::span<const std::byte> parts) noexcept;

  // Of such bytes with error feedback: whether results were averages.
  static bool are_of_averages(std::span<const std::byte> parts) noexcept;

  // Reads the header of each part, of foreign bytes. Null, or why these parts are no state of this
  // tensor; `same_layout` tells whether our own part is among them and fits as it is, and `own`
  // where it begins.
  Result<void> check(std::span<const std::byte> parts, bool& same_layout, std::uint64_t& own) const;

  void export_chunk(CodecState& state, std::uint32_t chunk, std::span<std::byte> part) const;
  // False: a value is not finite, or a record is not one; the state is as it was.
  bool import_chunk(CodecState& state, std::uint32_t chunk, std::span<const std::byte> part) const;
  // The same of operations with one leg, for the elements of a chunk of theirs.
  struct Elements {
    std::uint64_t begin = 0;
    std::uint64_t count = 0;
  };
  void export_elements(const CodecState& state, Elements elements, std::span<std::byte> part) const;
  bool import_elements(const CodecState& state, Elements elements,
                       std::span<const std::byte> part) const;
  // From parts of all nodes of another layout. What nodes owe of an element is added up, and is
  // this node's from now on if it `takes` that; otherwise this node owes nothing of these.
  bool refold_elements(const CodecState& state, Elements elements, std::span<const std::byte> parts,
                       bool takes) const;

  // Of a part with counts, where the ranks' shares begin and the last one ends.
  void write_counts(std::span<const std::uint64_t> share_begins, std::span<std::byte> part) const;
  // Of the first of parts that check() has accepted; they may have changed since. Empty: there are
  // none.
  Result<std::vector<std::uint64_t>> read_counts(std::span<const std::byte> parts) const;
  // Error feedback from parts of another layout: what was left unsent on either leg is added up,
  // and handed to one contributor and to the owner of the chunk's elements; where nobody owns it,
  // all to the contributor.
  bool refold_chunk(CodecState& state, std::uint32_t chunk, std::span<const std::byte> parts) const;

 private:
  // Whether it is of the same use as this one, or of none beside parts that are.
  bool is_of_this_use(const StatePartHeader& part, bool beside_others) const noexcept;
  StatePartHeader own_header_as(const StatePartHeader& part) const noexcept;
  Result<void> check_tensor(const StatePartHeader& part, bool some_have_one_leg) const;
  Result<void> check_length(const StatePartHeader& part, std::uint64_t expected) const;
  Result<void> check_foldable(std::uint32_t nodes, std::uint64_t seen) const;
  std::uint32_t owner(std::uint64_t chunk) const noexcept {
    return static_cast<std::uint32_t>((chunk + header_.spread) % header_.nodes);
  }
  std::uint64_t chunk_begin(std::uint64_t chunk) const noexcept {
    return chunk * header_.chunk_elements;
  }
  std::uint64_t chunk_size(std::uint64_t chunk) const noexcept;
  std::vector<std::uint32_t> senders(std::uint64_t chunk) const;
  // Under shifts, the node's own among them.
  std::uint64_t streams_of(std::uint64_t chunk) const noexcept {
    return owner(chunk) == header_.node ? header_.nodes : 2;
  }
  std::uint64_t record_offset(std::uint64_t chunk) const noexcept;
  bool shifts() const noexcept;
  // Under error feedback, of a part's bytes.
  std::uint64_t residuals_end() const noexcept {
    return sizeof(StatePartHeader) + header_.count * sizeof(float);
  }

  StatePartHeader header_{};
  std::uint32_t ranks_ = 0;  // of the group, where the part has counts
};

struct TensorState;

// One export or import under way. Made and freed by the conductor; the lanes read it.
struct StateMove {
  StatePart part;
  TensorState* tensor = nullptr;
  std::span<std::byte> room{};  // in the client's arena: foreign, may change at any time
  bool imports = false;
  bool same_layout = false;
  bool of_averages = false;  // what is imported
  std::uint64_t own = 0;     // where in room our own part begins
  // Of an import with counts, that the parts say; a copy.
  std::vector<std::uint64_t> share_begins{};
  // The conductor's.
  std::uint64_t client = 0;
  std::uint64_t request = 0;
  std::uint32_t lanes_left = 0;
  bool taken = false;  // a lane may have imported chunks
  Errc verdict = Errc::ok;
  std::string text{};
};

}  // namespace tern::daemon
