#include "daemon/lane/entry_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "plan/cut.h"
#include "plan/plans.h"
#include "shm/copy_progress.h"
#include "shm/encoded_by.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kMaxTag = 0xffffffff;

bool has_encoding(const shm::SubmitEntry& entry) noexcept {
  return (entry.encoded_by | entry.encoded_elements | entry.encoded_energy_bits |
          entry.encoded_residual_bits | entry.encoded_ns) != 0;
}

bool has_reserved_bits(const shm::SubmitEntry& entry) noexcept {
  const bool has_blocks = (entry.flags & shm::kEntryHasBlocks) != 0;
  const bool has_counts = (entry.flags & shm::kEntryHasCounts) != 0;
  const bool has_progress = (entry.flags & shm::kEntryHasProgress) != 0;
  constexpr std::uint8_t kFlags =
      shm::kEntryHasCounts | shm::kEntryHasProgress | shm::kEntrySharesDown | shm::kEntryHasBlocks;
  return (entry.flags & ~kFlags) != 0 || entry.reserved0 != 0 ||
         (entry.encoded_by & shm::EncodedBy::kReservedBits) != 0 ||
         (!has_blocks && has_encoding(entry)) || (!has_counts && entry.counts_offset != 0) ||
         (!has_progress && (entry.progress_offset != 0 || entry.progress_records != 0)) ||
         entry.wait_event != 0 || entry.signal_event != 0 ||
         std::any_of(std::begin(entry.reserved2), std::end(entry.reserved2),
                     [](std::uint64_t word) { return word != 0; });
}

// Numbers that later steps take for enum values or text.
const char* objection_to_fields(const shm::SubmitEntry& entry) noexcept {
  if (dtype_bytes(static_cast<DType>(entry.dtype)) == 0) return "unknown dtype";
  if (entry.reduction > static_cast<std::uint8_t>(kLastReduction)) return "unknown reduction";
  if (entry.role > static_cast<std::uint8_t>(Role::weights)) return "unknown role";
  if (has_reserved_bits(entry)) return "a reserved field is not zero";
  if (entry.recipe[sizeof(entry.recipe) - 1] != '\0') return "the recipe's text does not end";
  return nullptr;
}

plan::Shape shape_of(const shm::SubmitEntry& entry, const EntryPlace& place) noexcept {
  plan::Shape shape;
  shape.count = entry.count;
  shape.dtype = static_cast<DType>(entry.dtype);
  shape.reduction = static_cast<Reduction>(entry.reduction);
  shape.names_tensor = entry.tensor != 0;
  shape.prescale = std::bit_cast<float>(entry.prescale_bits);
  shape.state_scale = std::bit_cast<float>(entry.state_scale_bits);
  shape.root = entry.root;
  shape.rank = place.rank;
  shape.ranks = place.ranks;
  shape.counts = place.counts.empty() ? nullptr : place.counts.data();
  return shape;
}

const shm::BlockSlots* slots_of(const EntryPlace& place) noexcept {
  return place.tensor != nullptr && place.tensor->slots ? &*place.tensor->slots : nullptr;
}

bool in_arena(std::uint64_t offset, std::uint64_t bytes, std::uint64_t arena_bytes) noexcept {
  return bytes <= arena_bytes && offset <= arena_bytes - bytes;
}

const char* objection_to_memory(const shm::SubmitEntry& entry, const plan::Extents& extents,
                                const EntryPlace& place) noexcept {
  if ((entry.input_region != 0 && place.input == nullptr) ||
      (entry.output_region != 0 && place.output == nullptr)) {
    return "unknown memory region";
  }
  const std::uint64_t input = entry.input_region != 0 ? place.input->bytes : place.arena_bytes;
  const std::uint64_t output = entry.output_region != 0 ? place.output->bytes : place.arena_bytes;
  const std::size_t element = dtype_bytes(static_cast<DType>(entry.dtype));
  const shm::BlockSlots* const slots = slots_of(place);
  const auto bytes_of = [&](const plan::Range& elements) {
    return slots != nullptr ? slots->bytes() : elements.count * element;
  };
  if (!in_arena(entry.input_offset, bytes_of(extents.input), input) ||
      !in_arena(entry.output_offset, bytes_of(extents.output), output)) {
    return entry.input_region == 0 && entry.output_region == 0
               ? "the tensor is not inside the client's arena"
               : "the tensor is not inside the client's region";
  }
  const std::size_t aligned = slots != nullptr ? shm::kCacheLine : element;
  if (entry.input_offset % aligned != 0 || entry.output_offset % aligned != 0) {
    return slots != nullptr ? "the slots of blocks do not begin on a cache line"
                            : "the tensor is not aligned to its element";
  }
  return nullptr;
}

// What the tuner is told. Sums of squares of so many f32 are far below this.
bool is_sum_of_squares(std::uint64_t bits) noexcept {
  constexpr double kMost = 1e100;
  const auto sum = std::bit_cast<double>(bits);
  return sum >= 0.0 && sum <= kMost;
}

const char* objection_to_encoding(const shm::SubmitEntry& entry,
                                  const TensorState& tensor) noexcept {
  if (tensor.tuning == nullptr)
    return "the recipe of the blocks is the tensor's: the tuner has no say";
  if (entry.encoded_by == 0 ||
      shm::EncodedBy::of(entry.encoded_by).recipe >= tensor.tuning->recipes().size()) {
    return "the blocks' recipe is none that the tuner may choose";
  }
  if (entry.encoded_elements > entry.count || !is_sum_of_squares(entry.encoded_energy_bits) ||
      !is_sum_of_squares(entry.encoded_residual_bits)) {
    return "the energies of the blocks are no sums of squares of the tensor's elements";
  }
  return nullptr;
}

// Blocks and elements are not to be taken for each other.
const char* objection_to_blocks(const shm::SubmitEntry& entry, const plan::Plan& plan,
                                const EntryPlace& place) noexcept {
  const bool has_blocks = (entry.flags & shm::kEntryHasBlocks) != 0;
  if (entry.tensor != 0 && place.tensor == nullptr) return nullptr;  // it is refused for that
  if (has_blocks != (slots_of(place) != nullptr)) {
    return has_blocks ? "the tensor was not declared with client_blocks"
                      : "the tensor was declared with client_blocks: it takes blocks";
  }
  if (!has_blocks) return nullptr;
  if (!plan.takes_client_blocks) return "the operation takes no client_blocks";
  if (entry.recipe[0] != '\0') {
    return "an operation with blocks has the recipe of its tensor, and none of its own";
  }
  if (entry.prescale_bits != std::bit_cast<std::uint32_t>(1.0f)) {
    return "the prescale of blocks is whoever encodes them's: leave it 1";
  }
  if ((entry.flags & shm::kEntryHasProgress) != 0) return "blocks are used where they are";
  return has_encoding(entry) ? objection_to_encoding(entry, *place.tensor) : nullptr;
}

const char* objection_to_tensor(const shm::SubmitEntry& entry, const TensorState& tensor) noexcept {
  if (tensor.dtype != static_cast<DType>(entry.dtype) || tensor.count != entry.count) {
    return "dtype or count differ from the tensor's declaration";
  }
  // State was made, or not, for the declared role.
  if (tensor.role != static_cast<Role>(entry.role)) {
    return "the role differs from the tensor's declaration";
  }
  return nullptr;
}

plan::Place place_of(const shm::SubmitEntry& entry, const EntryPlace& place) noexcept {
  return {.tensor = entry.tensor,
          .sequence = entry.sequence,
          .chunk_bytes = place.group.chunk_bytes,
          .version = place.group.cut,
          .nodes = place.group.nodes(),
          .lanes = place.group.lanes,
          .one_lane = place.tensor != nullptr && place.tensor->declared.one_lane};
}

const char* objection_to_progress(const shm::SubmitEntry& entry, const plan::Plan& plan,
                                  const EntryPlace& place) noexcept {
  const bool shares_down = (entry.flags & shm::kEntrySharesDown) != 0;
  if (shares_down && !plan.sends_shares_down()) return "the input does not come share by share";
  if ((entry.flags & shm::kEntryHasProgress) == 0) {
    return shares_down ? "the entry says how its input comes, which is not copied" : nullptr;
  }
  if (plan.work == plan::Work::none) {
    return "the operation's memory cannot be copied while it runs";
  }
  if (entry.progress_records > shm::kMaxDeliveredRecords) return "too many records of deliveries";
  const shm::CopyProgress::Shape shape{place.group.lanes, entry.progress_records};
  if (entry.progress_offset % shm::kCacheLine != 0 ||
      !in_arena(entry.progress_offset, shape.bytes(), place.arena_bytes)) {
    return "the progress of copies is not on a cache line inside the client's arena";
  }
  return nullptr;
}

// Of what is passed from one rank to another.
const char* objection_to_passing(const shm::SubmitEntry& entry) noexcept {
  if (entry.sequence > kMaxTag) return "a tag has 32 bits";
  if (entry.input_region != 0 || entry.output_region != 0) return "sends and recvs use the arena";
  return nullptr;
}

}  // namespace

CheckedEntry check_entry(const shm::SubmitEntry& entry, const EntryPlace& place) {
  const auto refused = [](const char* problem, Errc code = Errc::invalid_argument) {
    return CheckedEntry{nullptr, 0, code, problem, {}};
  };
  const plan::Plan* const plan = plan::find(entry.kind);
  if (plan == nullptr) return refused("unknown kind of operation");
  if (const char* problem = objection_to_fields(entry)) return refused(problem);
  const plan::Shape shape = shape_of(entry, place);
  if (const char* problem = plan::objection(*plan, shape)) return refused(problem);
  const plan::Extents extents = plan->extents(shape);
  if (const char* problem = objection_to_blocks(entry, *plan, place)) return refused(problem);
  if (const char* problem = objection_to_memory(entry, extents, place)) {
    return refused(problem);
  }
  if (entry.tensor != 0) {
    if (place.tensor == nullptr) {
      return refused("the tensor is not declared in this group", Errc::unknown_tensor);
    }
    if (const char* problem = objection_to_tensor(entry, *place.tensor)) return refused(problem);
  }
  if (const char* problem = objection_to_progress(entry, *plan, place)) return refused(problem);
  const plan::Place cut_at = place_of(entry, place);
  if (plan->passes()) {
    if (const char* problem = objection_to_passing(entry)) return refused(problem);
  } else if (plan::cut(*plan, shape, cut_at).chunk_count >= collective::kNoSlot) {
    return refused("the operation has more chunks than there are numbers for them");
  }
  const std::uint32_t lanes = plan::lanes(*plan, shape, cut_at);
  if ((lanes >> place.group.lane & 1u) == 0) {
    return refused("the operation does not belong on this lane");
  }
  return {plan, lanes, Errc::ok, nullptr, extents};
}

}  // namespace tern::daemon
