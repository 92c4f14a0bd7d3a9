#include "daemon/lane/pass_copies.h"

#include <algorithm>
#include <cstdio>

namespace tern::daemon {

using collective::PassId;

void PassCopies::begin(PassId pass, const shm::SubmitEntry& entry, LaneClient& client) {
  if (copies_.size() <= pass) {
    copies_.resize(mailbox_.slots());
    arriving_.reserve(mailbox_.slots());
  }
  Copy& own = copies_[pass] = Copy{};
  if ((entry.flags & shm::kEntryHasProgress) == 0) return;
  own.client = &client;
  own.copy.progress = {client.arena.base + entry.progress_offset,
                       {core_.setup().shape.lanes, entry.progress_records}};
  own.copy.moved_ns = core_.now_ns();
  own.copy.client = client.memory;
  const collective::Passing& what = mailbox_.pass(pass).what;
  if (!what.sends) return;
  own.bytes = what.envelope.bytes();
  if (own.bytes != 0) arriving_.push_back(pass);
}

void PassCopies::end(PassId pass) {
  copies_[pass] = Copy{};
  std::erase(arriving_, pass);
}

bool PassCopies::look() {
  bool moved = false;
  std::erase_if(arriving_, [&](PassId send) {
    moved = look_at(send) || moved;
    return copies_[send].copy.input_bytes == copies_[send].bytes;
  });
  return moved;
}

bool PassCopies::look_at(PassId send) {
  Copy& own = copies_[send];
  const std::uint64_t bytes = own.copy.progress.input_bytes();
  if (bytes == own.copy.input_bytes) return false;
  if (bytes < own.copy.input_bytes || bytes > own.bytes) {
    char text[120];
    std::snprintf(
        text, sizeof(text), "the watermark of its input says %llu of %llu bytes, after %llu",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(own.bytes),
        static_cast<unsigned long long>(own.copy.input_bytes));
    fail(send, Errc::invalid_argument, text);
    own.copy.input_bytes = own.bytes;  // it is not looked at again
    return true;
  }
  own.copy.rise(bytes, core_.now_ns());
  mailbox_.arrived(send, bytes);
  return true;
}

bool PassCopies::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  const bool moved = look();
  for (const PassId send : arriving_) {
    const Copy& own = copies_[send];
    if (timeout_ns == 0 || now_ns < own.copy.still_since_ns() + timeout_ns) continue;
    char text[120];
    std::snprintf(text, sizeof(text), "for %llu ms its input has stopped at %llu of %llu bytes",
                  static_cast<unsigned long long>(timeout_ns / 1'000'000),
                  static_cast<unsigned long long>(own.copy.input_bytes),
                  static_cast<unsigned long long>(own.bytes));
    fail(send, Errc::op_timeout, text);
  }
  return moved;
}

void PassCopies::fail(PassId send, Errc code, const char* text) {
  const std::uint32_t rank = mailbox_.pass(send).what.envelope.source;
  char whole[160];
  std::snprintf(whole, sizeof(whole), "rank %u: %s", rank, text);
  mailbox_.fail(send, {code, rank, whole});
}

void PassCopies::deliver(PassId recv, const shm::DeliveredRecord& piece) noexcept {
  // A client that sleeps over a recv is woken for so much of it at a time.
  constexpr std::uint64_t kWakeBytes = 512 << 10;
  Copy& own = copies_[recv];
  RankCopy& copy = own.copy;
  if (!copy.progress.exists() || copy.records >= copy.progress.shape().records) return;
  if (piece.bytes == 0) return;
  copy.progress.deliver(core_.setup().shape.lane, copy.records++, piece);
  copy.unrung_bytes += piece.bytes;
  if (copy.unrung_bytes < kWakeBytes) return;
  copy.unrung_bytes = 0;
  own.client->rang = true;
}

}  // namespace tern::daemon
