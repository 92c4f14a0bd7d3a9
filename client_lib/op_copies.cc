#include "client_lib/op_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shm/streamed_copy.h"

namespace tern::client_lib {

// What travels with its announcement is read at once.
void OpCopies::place_progress(const OpRequest& request, Op& op) {
  constexpr std::uint64_t kWorthBytes = 256 << 10;
  const GroupState& group = *request.group;
  const std::uint64_t copied_in = op.input_copy != kNoOffset ? op.input_bytes : 0;
  const std::uint64_t copied_out = op.output_copy != kNoOffset ? op.output_bytes : 0;
  const std::uint64_t bytes = request.count * dtype_bytes(request.dtype);
  const bool passes = request.plan->passes();
  if (!daemon_has(passes ? shm::kFeaturePassProgress : shm::kFeatureProgress) ||
      std::max(copied_in, copied_out) < kWorthBytes || bytes <= group.eager_bytes) {
    return;
  }
  // An upper bound of the chunks, wherever they are cut, or of the pieces of a recv, which have at
  // most kWorthBytes. A list that is too short ends early.
  const std::uint64_t piece = passes ? std::min(group.chunk_bytes, kWorthBytes) : group.chunk_bytes;
  const std::uint64_t chunks = 2 * copied_out / piece + static_cast<std::uint64_t>(group.size) + 8;
  const auto records = static_cast<std::uint32_t>(
      copied_out == 0 ? 0 : std::min<std::uint64_t>(chunks, shm::kMaxDeliveredRecords));
  arena_.place_progress({group.lane_count, records}, op);
  if (!op.progress.exists()) return;
  if (copied_in == 0) op.progress.raise_input(op.input_bytes);
  op.progress_flags = shm::kEntryHasProgress;
  if (request.plan->sends_shares_down() && daemon_has(shm::kFeatureSharesDown)) {
    op.progress_flags |= shm::kEntrySharesDown;
  }
}

void OpCopies::copy_first(Op& first, std::unique_lock<std::mutex>& lock) noexcept {
  for (Op* op = &first; op != nullptr; op = op->next) {
    if (op->input_copy == kNoOffset || op->progress.exists()) continue;
    // In state preparing the op is this thread's alone.
    lock.unlock();
    std::memcpy(op->copied + op->input_copy, op->input, op->input_bytes);
    lock.lock();
  }
}

Op* OpCopies::to_fill(Op& first) noexcept {
  Op* head = nullptr;
  Op** tail = &head;
  for (Op* op = &first; op != nullptr; op = op->next) {
    if (!op->progress.exists() || op->input_copy == kNoOffset) continue;
    op->copying = true;
    *tail = op;
    tail = &op->next_to_fill;
  }
  return head;
}

void OpCopies::fill(Op* op) {
  while (op != nullptr) {
    fill_one(*op);
    const std::lock_guard lock(mutex_);
    op->copying = false;
    op = std::exchange(op->next_to_fill, nullptr);
  }
}

void OpCopies::fill_one(Op& op) {
  constexpr std::uint64_t kPieceBytes = 512 << 10;
  std::byte* const copy = op.copied + op.input_copy;
  const auto* const input = static_cast<const std::byte*>(op.input);
  std::uint64_t done = 0, told = 0;
  for (std::uint32_t i = 0; done < op.input_bytes; ++i) {
    const plan::Range part = part_of(op, i);
    const std::uint64_t end = part.end() * op.element_bytes;
    for (std::uint64_t at = part.begin * op.element_bytes; at < end;) {
      const std::uint64_t bytes = std::min(kPieceBytes, end - at);
      shm::copy_part(copy + at, input + at, bytes, op.input_bytes);
      at += bytes;
      done += bytes;
      if (done - told < kPieceBytes && done < op.input_bytes) continue;
      told = done;
      op.progress.raise_input(done);
      lanes_.wake(op.lanes);
    }
  }
}

plan::Range OpCopies::part_of(const Op& op, std::uint32_t i) const noexcept {
  if ((op.progress_flags & shm::kEntrySharesDown) == 0) return {0, op.extents.input.count};
  const auto ranks = static_cast<std::uint32_t>(op.group->size);
  const void* const counts = op.counts_copy != kNoOffset ? arena_.at(op.counts_copy) : nullptr;
  const plan::Shares shares{op.extents.input.count, ranks,
                            static_cast<const std::uint64_t*>(counts)};
  const std::uint32_t sharer = shares.down_from(static_cast<std::uint32_t>(op.group->rank), i);
  return {shares.begin(sharer), shares.of(sharer)};
}

bool OpCopies::take_deliveries(Op* first, std::unique_lock<std::mutex>& lock) {
  for (Op* op = first; op != nullptr; op = op->next) {
    if (op->copying || op->state != Op::State::running || !op->delivery.has_more()) continue;
    op->copying = true;
    lock.unlock();
    op->delivery.copy_listed();
    lock.lock();
    op->copying = false;
    return true;
  }
  return false;
}

void OpCopies::copy_rest(Op& op) const noexcept {
  if (op.output_copy == kNoOffset) return;
  // A recv may have got less than there is room for.
  const std::uint64_t bytes =
      op.passes ? std::min(op.output_bytes, op.what_came.elements * op.element_bytes)
                : op.output_bytes;
  if (op.progress.exists()) return op.delivery.copy_rest(bytes);
  std::memcpy(op.output, op.copied + op.output_copy, bytes);
}

}  // namespace tern::client_lib
