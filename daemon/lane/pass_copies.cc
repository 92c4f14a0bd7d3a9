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
  const shm::CopyProgress progress(client.arena.base + entry.progress_offset,
                                   {core_.setup().shape.lanes, entry.progress_records});
  own.client = &client;
  own.copy = MemoryCopy(entry, progress, *client.memory, core_.now_ns());
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
    Copy& own = copies_[send];
    MemoryCopy::Problem problem;
    if (!own.copy.look(own.bytes, core_.now_ns(), problem)) return false;
    moved = true;
    if (problem) {
      fail(send, Errc::invalid_argument, problem.text());
      return true;
    }
    mailbox_.arrived(send, own.copy.input_bytes());
    return own.copy.input_bytes() == own.bytes;
  });
  return moved;
}

bool PassCopies::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  const bool moved = look();
  if (timeout_ns == 0) return moved;
  for (const PassId send : arriving_) {
    const auto problem = copies_[send].copy.stall(copies_[send].bytes, now_ns, timeout_ns);
    if (problem) fail(send, Errc::op_timeout, problem.text());
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
  Copy& own = copies_[recv];
  if (own.copy.deliver(core_.setup().shape.lane, piece)) own.client->rang = true;
}

}  // namespace tern::daemon
