// verify=on: the checksums of every rank's result, compared on every node.

#include <algorithm>
#include <cstdio>

#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"
#include "wire/crc32c.h"

namespace tern::daemon {

using collective::OpId;

void LaneGroup::send_checksums(OpId op) {
  const auto& ranks = setup_.shape.ranks[self_];
  const auto& chunks = ops_.op(op).chunks;
  const std::size_t element = dtype_bytes(dtype(op));
  for (std::uint32_t i = 0; i < local_ranks_; ++i) {
    std::uint32_t crc = 0;
    if (ops_.op(op).eager) {
      crc = wire::crc32c({rank_of(op, i).output, ops_.op(op).announced_first.count * element});
    } else {
      for (std::uint32_t node = 0; node < nodes_; ++node) {
        for (std::uint32_t index = 0; index < chunks.owned(node); ++index) {
          const Part where = part(op, chunks.chunk(node, index));
          crc = wire::crc32c(
              {rank_of(op, i).output + where.begin * element, where.elements * element}, crc);
        }
      }
    }
    verify_bodies_[i] = {ranks[i], crc};
    checksums_[std::size_t{op} * setup_.size + ranks[i]] = crc;
  }
  const auto header = frame(wire::FrameKind::verify, op, 0, 0);
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->link->state() == net::LinkState::lost) continue;
    peer->link->send_copy(header, std::as_bytes(std::span(verify_bodies_)));
  }
}

void LaneGroup::compare_checksums(OpId op) {
  const std::uint32_t* sums = &checksums_[std::size_t{op} * setup_.size];
  // What most ranks have is taken for right; of equal camps the one with the lowest rank.
  std::uint32_t right = sums[0];
  std::size_t most = 0;
  for (std::uint32_t i = 0; i < setup_.size; ++i) {
    const auto same = static_cast<std::size_t>(std::count(sums, sums + setup_.size, sums[i]));
    if (same > most) {
      most = same;
      right = sums[i];
    }
  }
  if (most == setup_.size) return;
  OpData& data = data_[op];
  data.verdict = Errc::result_mismatch;
  int used = std::snprintf(data.verdict_text, sizeof(data.verdict_text),
                           "the result differs from the other ranks' on rank");
  for (std::uint32_t i = 0; i < setup_.size && used < 100; ++i) {
    if (sums[i] == right) continue;
    used += std::snprintf(data.verdict_text + used,
                          sizeof(data.verdict_text) - static_cast<std::size_t>(used), " %u", i);
  }
}

}  // namespace tern::daemon
