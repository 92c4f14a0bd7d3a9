// The ends of ops. Whoever waits polls the completion rings of all lanes for everybody, under the
// mutex; what it finds for others stays marked in the table until they ask.
//
// No end is missed: a thread reads the doorbell, then polls, then sleeps on the value it read. What
// was published before the read is found by the poll (or was found by another thread, and is
// marked); what is published later changes the doorbell after the read, and the sleep ends.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "client_lib/client.h"
#include "client_lib/last_error.h"
#include "client_lib/sized_struct.h"
#include "shm/wakeup.h"

namespace tern::client_lib {
namespace {

constexpr std::uint64_t kSleepSliceNs = 100'000'000;
// tern_test in a loop must notice a dead daemon too, but not by a system call each time.
constexpr std::uint64_t kLossCheckNs = 10'000'000;

Errc known_code(std::int32_t status) noexcept {
  return status >= 0 && status < kErrcCount ? static_cast<Errc>(status) : Errc::internal;
}

// Allocates nothing.
void tell_failure(const Op& op, std::size_t index) noexcept {
  const std::string_view said(op.detail, ::strnlen(op.detail, sizeof op.detail));
  if (op.lead == nullptr) return set_error_detail(said);
  std::array<char, sizeof op.detail + 64> text;
  const int bytes = std::snprintf(text.data(), text.size(), "operation %zu of the batch: %.*s",
                                  index, static_cast<int>(said.size()), said.data());
  set_error_detail({text.data(), static_cast<std::size_t>(bytes)});
}

// What a recv has got.
void tell_received(const Op& op) noexcept {
  if (op.received == nullptr) return;
  tern_received received = TERN_RECEIVED_INIT;
  received.source = static_cast<std::int32_t>(op.what_came.source);
  received.count = op.what_came.elements;
  write_struct(received, op.received);
}

// Of a batch, any of its ops.
bool is_under_way(const Op& first) noexcept {
  if (first.unended != 0) return true;
  for (const Op* op = &first; op != nullptr; op = op->next) {
    if (op->state == Op::State::running || op->copying) return true;
  }
  return false;
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Errc Client::wait(std::span<const std::uint64_t> tickets, std::int64_t timeout_ms,
                  std::size_t& index) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  bool spun = false;
  for (;;) {
    const std::uint32_t seen = shm::read_doorbell(segment_.header());
    {
      std::unique_lock lock(mutex_);
      poll_completions();
      for (index = 0; index < tickets.size(); ++index) {
        Op* op = ops_.find_named(tickets[index]);
        if (op != nullptr && is_under_way(*op)) continue;
        if (op == nullptr) {
          refresh_pollable();
          set_error_detail("the ticket is not of this client, or its end was reported already");
          return Errc::unknown_ticket;
        }
        op->state = Op::State::reporting;
        --unreported_;
        lock.unlock();
        return report(*op);
      }
      index = 0;
      if (take_deliveries(tickets, lock)) continue;
      if (timeout_ms == 0) refresh_pollable();
      // Found by the second poll, in refresh_pollable: the next test tells.
    }
    const std::uint64_t remaining_ns = timeout_ms == 0 ? 0 : deadline.remaining_ns();
    if (!idle(seen, remaining_ns, spun)) {
      if (timeout_ms != 0) {
        const std::lock_guard lock(mutex_);
        refresh_pollable();
      }
      return Errc::timeout;
    }
  }
}

// Lets time pass until something may have changed. False if there is no time left; true at once if
// the loss of the daemon was noticed, because then all ops have ended.
bool Client::idle(std::uint32_t seen, std::uint64_t remaining_ns, bool& spun) {
  const std::uint64_t now_ns = SteadyClock().now_ns();
  if (!lost_.load() &&
      now_ns - last_loss_check_ns_.load(std::memory_order_relaxed) > kLossCheckNs) {
    last_loss_check_ns_.store(now_ns, std::memory_order_relaxed);
    if (questions_.lost()) {
      notice_loss();
      return true;
    }
  }
  if (remaining_ns == 0) return false;
  const std::uint64_t spin_ns =
      spun ? 0 : std::min<std::uint64_t>(segment_.spin_ns(), remaining_ns);
  if (spin_ns != 0) {
    spun = true;
    while (SteadyClock().now_ns() - now_ns < spin_ns) {
      if (shm::read_doorbell(segment_.header()) != seen) return true;
      relax();
    }
    return true;
  }
  shm::sleep_on_doorbell(segment_.header(), seen, std::min(remaining_ns, kSleepSliceNs));
  return true;
}

// Of one of these ops, as OpCopies.
bool Client::take_deliveries(std::span<const std::uint64_t> tickets,
                             std::unique_lock<std::mutex>& lock) {
  for (const std::uint64_t ticket : tickets) {
    if (!OpCopies::take_deliveries(ops_.find_named(ticket), lock)) continue;
    // Another thread may have found an end, and could not report it.
    shm::wake_sleepers(segment_.header());
    return true;
  }
  return false;
}

// Hands results over and ends the ticket. Of a batch the first op in its order that failed is told.
Errc Client::report(Op& first) {
  Errc status = Errc::ok;
  std::size_t index = 0;
  for (Op* op = &first; op != nullptr; op = op->next, ++index) {
    if (op->status == Errc::ok) {
      copies_->copy_rest(*op);
      tell_received(*op);
    } else if (status == Errc::ok) {
      status = op->status;
      tell_failure(*op, index);
    }
  }
  const std::lock_guard lock(mutex_);
  for (Op* op = &first; op != nullptr;) {
    Op* const next = op->next;
    arena_->free_copies(*op);
    ops_.release(*op);
    op = next;
  }
  refresh_pollable();
  return status;
}

void Client::poll_completions() noexcept {
  if (lost_.load()) return;
  shm::CompletionEntry entry;
  for (std::uint32_t lane = 0; lane < completions_.size(); ++lane) {
    shm::RingResult result = shm::RingResult::ok;
    while ((result = completions_[lane].try_pop(entry)) == shm::RingResult::ok) {
      take_completion(lane, entry);
    }
    if (result == shm::RingResult::corrupt) {
      questions_.close(Errc::protocol_error, "ternd wrote nonsense to a completion ring");
      lose_locked();
      return;
    }
  }
}

// A completion that nobody waits for (twice, or of an op that is no more) changes nothing.
void Client::take_completion(std::uint32_t lane, const shm::CompletionEntry& entry) noexcept {
  Op* op = ops_.find(entry.ticket);
  if (op == nullptr || (op->pending_lanes >> lane & 1u) == 0) return;
  op->pending_lanes &= ~(1u << lane);
  if (entry.status != 0) {
    op->fail(known_code(entry.status),
             {entry.detail, ::strnlen(entry.detail, sizeof entry.detail)});
  }
  if (op->tensor) op->tensor->take_choice(lane, entry.encode_next_by);
  if (op->passes) op->what_came = {entry.source, entry.elements};
  if (op->pending_lanes == 0) end_op(*op);
}

void Client::end_op(Op& op) noexcept {
  op.state = Op::State::ended;
  if (op.lead == nullptr || --op.lead->unended == 0) ++unreported_;
  GroupState& group = *op.group;
  --group.count_of(op.passes);
  // kNotCounted is later than all.
  if (op.status != Errc::ok) group.first_failed = std::min(group.first_failed, op.group_index);
  if (op.tensor && --op.tensor->in_flight == 0 && op.tensor->released && !group.left) {
    questions_.post_release(*op.tensor);
  }
}

void Client::lose_locked() noexcept {
  if (lost_.exchange(true)) return;
  for (Op& op : ops_.all()) {
    if (op.state != Op::State::running) continue;
    op.fail(Errc::daemon_lost, "ternd ended while the operation was in flight");
    op.pending_lanes = 0;
    end_op(op);
  }
  refresh_pollable();
  shm::wake_sleepers(segment_.header());
}

void Client::notice_loss() noexcept {
  questions_.close(Errc::daemon_lost, "ternd closed the connection");
  const std::lock_guard lock(mutex_);
  if (segment_.lane_count() == 0) return;
  // What the daemon had completed before it died is still a result.
  poll_completions();
  lose_locked();
}

// Drain, arm, poll, in this order: a lane that completes after the arming sends a byte, and what it
// completed before is found by the poll and shown by the level.
void Client::refresh_pollable() noexcept {
  if (!pollable_) return;
  if (!lost_.load() && pollable_->rearm(segment_.header(), notify_.get())) poll_completions();
  pollable_->set_level(unreported_ > 0 || lost_.load());
}

}  // namespace tern::client_lib
