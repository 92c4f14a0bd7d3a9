// Submissions and frames.

#include "collective/group_ops.h"

#include <bit>
#include <cstdio>

#include "base/check.h"
#include "collective/op_plan.h"
#include "collective/op_sets.h"
#include "plan/plans.h"

namespace tern::collective {
namespace {

// Every node may have max_ops_in_flight ops that the others do not know yet; one share more is for
// ops that have failed before this node's ranks submitted them.
std::size_t slots_of(const GroupShape& shape) noexcept {
  return std::size_t{shape.max_ops_in_flight} * (shape.nodes() + 1);
}

// Whose announcements are here.
struct PairsHeard {
  const GroupShape& group;
  std::uint64_t nodes = 0;
};

// What ranks say of how many elements one has for another. The rank that two do not agree about,
// and who says what; kNoRank: all agree.
std::uint32_t disagreement_here(const PairCounts& pairs, const GroupShape& shape,
                                std::span<char> text) {
  const auto& here = shape.ranks[shape.node];
  for (std::uint32_t from = 0; from < here.size(); ++from) {
    for (std::uint32_t to = 0; to < here.size(); ++to) {
      const std::uint64_t sent = pairs.sent(from, here[to]);
      const std::uint64_t expected = pairs.received(to, here[from]);
      if (sent == expected) continue;
      std::snprintf(text.data(), text.size(),
                    "rank %u sends %llu elements to rank %u, which expects %llu", here[from],
                    static_cast<unsigned long long>(sent), here[to],
                    static_cast<unsigned long long>(expected));
      return here[from];
    }
  }
  return kNoRank;
}

std::uint32_t disagreement_with(std::uint32_t node, const PairCounts& pairs,
                                const GroupShape& shape, std::span<char> text) {
  const std::uint32_t from = shape.ranks[node][0];
  const std::uint32_t to = shape.ranks[shape.node][0];
  std::snprintf(text.data(), text.size(),
                "rank %u, or another of its node, sends other counts to the node of rank %u than "
                "these expect; rank %u expects %llu elements from rank %u",
                from, to, to, static_cast<unsigned long long>(pairs.received(0, from)), from);
  return from;
}

// With these nodes, before any of them may send what it has: who has heard all announcements
// begins.
Failure disagreement(OpId id, const OpTable& ops, const PairsHeard& heard, std::span<char> text) {
  const PairCounts& pairs = *ops[id].pairs;
  std::uint32_t rank = disagreement_here(pairs, heard.group, text);
  for (std::uint32_t node = 0; node < heard.group.nodes() && rank == kNoRank; ++node) {
    if (node == heard.group.node || (heard.nodes & bit(node)) == 0) continue;
    if (ops.heard(id, node).counts_crc != pairs.received_crc(node)) {
      rank = disagreement_with(node, pairs, heard.group, text);
    }
  }
  return {rank == kNoRank ? Errc::ok : Errc::mismatch, rank, text.data()};
}

}  // namespace

GroupOps::GroupOps(GroupShape shape)
    : shape_(std::move(shape)),
      ops_(slots_of(shape_), shape_.nodes(), shape_.max_ops_in_flight),
      legs_(shape_, slots_of(shape_)),
      shares_(shape_.group_size()),
      pairs_(shape_),
      schedule_(slots_of(shape_)) {
  TERN_CHECK(shape_.nodes() >= 1 && shape_.nodes() <= kMaxNodes && shape_.local_ranks() >= 1 &&
             shape_.local_ranks() <= kMaxLocalRanks);
}

// ---- Submission and announcement ----------------------------------------------------------------

// Fails the op if body differs from what was said before.
bool GroupOps::agrees(OpId id, const wire::AnnounceBody& body) {
  Op& op = ops_[id];
  if (op.plan == nullptr) {
    describe(op, body, shape_);
    return true;
  }
  if (same_op(op.announced_first, body)) return true;
  char text[sizeof(Op::text)];
  write_mismatch(op.announced_first, body, text);
  fail(id, {Errc::mismatch, body.rank, text});
  return false;
}

// Of ranks of this node the counts themselves are compared. Those of other nodes are compared by
// their checksums, and ones that pass by chance fail as blocks of a wrong size.
bool GroupOps::takes_counts(OpId id, const Submission& submission) {
  Op& op = ops_[id];
  if (submission.counts.empty()) return true;
  if (op.plan->has_pairs()) {
    if (op.pairs == nullptr) op.pairs = pairs_.take();
    op.pairs->say(submission.local_rank, submission.counts);
    if (op.submitted != low_bits(shape_.local_ranks())) return true;
    cut(op, shape_, submission.counts.data());
    char text[sizeof(Op::text)];
    const Failure failure = disagreement(id, ops_, {shape_, op.announced}, text);
    if (failure.code != Errc::ok) fail(id, failure);
    return failure.code == Errc::ok;
  }
  if (op.share_begins == nullptr) {
    op.share_begins = shares_.take(submission.counts);
    cut(op, shape_, submission.counts.data());
    return true;
  }
  if (shares_.are(op.share_begins, submission.counts)) return true;
  fail(id, {Errc::mismatch, submission.body.rank, "ranks of one node give other counts"});
  return false;
}

GroupOps::SubmitResult GroupOps::on_submit(const Submission& submission, OpId& id) {
  const OpKey& key = submission.key;
  const std::uint64_t all_local = low_bits(shape_.local_ranks());
  id = ops_.find(key);
  if (id == kNoSlot && ops_.superseded(key)) return SubmitResult::duplicate;
  if (id == kNoSlot && ops_.is_dropped(key.tensor)) return SubmitResult::released;
  if (id != kNoSlot && (ops_[id].submitted & bit(submission.local_rank)) != 0) {
    return SubmitResult::duplicate;
  }
  if (id == kNoSlot || ops_[id].submitted == 0) {
    if (counts_.in_flight >= shape_.max_ops_in_flight) return SubmitResult::too_many;
    if (id == kNoSlot) id = ops_.create(key);
    if (id == kNoSlot) return SubmitResult::too_many;
    ++counts_.in_flight;
    ops_[id].first_submit_ns = submission.now_ns;
    ops_[id].priority = submission.priority;
  }
  Op& op = ops_[id];
  op.submitted |= bit(submission.local_rank);
  if (op.submitted == all_local) {
    ops_.submitted_by_all(key);
    forget_failed(key.tensor, key.sequence);
  }
  if (op.failed()) {  // before this rank came: it is told the same
    if (op.plan == nullptr) describe(op, submission.body, shape_);
    if (!op.is_completing()) complete_failed(id);
    return SubmitResult::accepted;
  }
  if (!agrees(id, submission.body) || !takes_counts(id, submission)) return SubmitResult::accepted;
  if (const std::uint64_t left = departures_.left(); left != 0) {
    const std::uint32_t rank =
        shape_.ranks[shape_.node][static_cast<std::uint32_t>(std::countr_zero(left))];
    fail(id, {Errc::group_left, rank, left_text(rank).data()});
    return SubmitResult::accepted;
  }
  // release() of the earlier use comes back to it.
  if (op.submitted == all_local && !ops_.waits_for_earlier_use(id)) schedule_.announce(id);
  return SubmitResult::accepted;
}

void GroupOps::compress(OpId id, bool scans) {
  Op& op = ops_[id];
  op.contribution = scans ? Contribution::scanned_blocks : Contribution::blocks;
  if (op.plan->may_decline_eager()) decline_eager(op, shape_);
}

bool GroupOps::on_announce(std::uint32_t node, const OpKey& key, const wire::AnnounceBody& body,
                           OpId& id) {
  id = kNoSlot;
  const plan::Plan* const plan = plan::find(body.kind);
  if (plan == nullptr || plan->passes()) {
    // A node of another version may know more; its op fails, and the link goes on.
    if (!ops_.superseded(key)) {
      fail_key(key, {Errc::mismatch, body.rank, kUnknownKind});
    }
    return true;
  }
  id = ops_.find(key);
  if (id == kNoSlot) {
    if (ops_.superseded(key) || ended()) return true;
    id = ops_.create(key);
    if (id == kNoSlot) return false;  // more ops in flight than this node may have
  }
  Op& op = ops_[id];
  if ((op.announced & bit(node)) != 0) return false;
  if (op.failed() || !agrees(id, body)) {
    id = kNoSlot;
    return true;
  }
  if (!eager_bytes_agree(op, node, body, shape_)) return false;
  op.announced |= bit(node);
  if (body.counts_crc != 0) ops_.hear(id, node).counts_crc = body.counts_crc;
  const bool all_here = op.submitted == low_bits(shape_.local_ranks());
  if (op.pairs != nullptr && all_here) {
    char text[sizeof(Op::text)];
    const Failure failure = disagreement(id, ops_, {shape_, bit(node)}, text);
    if (failure.code != Errc::ok) {
      fail(id, failure);
      return true;
    }
  }
  if (const std::uint64_t left = departures_.left() & ~op.submitted; left != 0) {
    const std::uint32_t rank =
        shape_.ranks[shape_.node][static_cast<std::uint32_t>(std::countr_zero(left))];
    fail(id, {Errc::group_left, rank, left_text(rank).data()});
    return true;
  }
  if (!all_here && ops_.is_dropped(key.tensor)) {
    const std::uint32_t rank = shape_.ranks[shape_.node][0];
    fail(id, {Errc::cancelled, rank, released_text(rank).data()});
    return true;
  }
  if (op.announced == low_bits(nodes())) start(id);
  return true;
}

bool GroupOps::on_submitted(std::uint32_t node, const OpKey& key, std::uint64_t ranks) {
  if ((ranks & ~low_bits(static_cast<std::uint32_t>(shape_.ranks[node].size()))) != 0) return false;
  // One that nobody here knows will be announced or fail, as one that has been announced will. Where
  // all ranks have left, it may have failed and be forgotten.
  const bool may_begin = !ended() && departures_.others_may_come(0, shape_.local_ranks());
  const OpId id = may_begin ? ops_.find_or_create(key) : ops_.find(key);
  if (id != kNoSlot) ops_.hear(id, node).told |= ranks;
  return true;
}

// ---- Data legs ----------------------------------------------------------------------------------

bool GroupOps::on_grant(std::uint32_t node, const OpKey& key, std::uint32_t chunk,
                        std::uint32_t count) {
  const OpId id = ops_.find(key);
  if (id == kNoSlot) return ops_.superseded(key) || ended();
  Op& op = ops_[id];
  if (op.failed() || op.is_completing()) return true;
  // An owner grants after all have announced, and this node is one of them.
  if (!op.has_spoken(shape_.node) || !op.plan->reduces()) return false;
  // It knows of a node that wants the two legs, whose announcement has not come here yet.
  decline_eager(op, shape_);
  return !op.is_eager() && !op.announces_chunks() && legs_.take_grant(id, op, {node, chunk, count});
}

bool GroupOps::expect_contribution(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                                   ChunkId& chunk) const {
  chunk = kNoSlot;
  const OpId id = ops_.find(key);
  if (id == kNoSlot) return ops_.superseded(key) || ended();
  const Op& op = ops_[id];
  if (op.failed()) return true;
  if (!op.has_started() || op.is_eager() || op.announces_chunks()) return false;
  chunk = legs_.expected_by(id, op, node, chunk_number);
  return chunk != kNoSlot;
}

void GroupOps::on_contribution(std::uint32_t node, ChunkId chunk) {
  legs_.contributed(chunk, node);
}

bool GroupOps::expect_result(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                             OpId& id) {
  id = ops_.find(key);
  if (id == kNoSlot) return ops_.superseded(key) || ended();
  Op& op = ops_[id];
  if (op.failed()) {
    id = kNoSlot;
    return true;
  }
  if (!op.has_spoken(shape_.node)) return false;
  // As with a grant: of what moves, the first thing that an owner sends is a result.
  if (op.plan->moves() && op.plan->may_decline_eager()) decline_eager(op, shape_);
  if (op.is_eager()) return false;
  return legs_.expects_result(id, op, node, chunk_number);
}

void GroupOps::delivering(std::uint32_t node, OpId id) {
  ++ops_[id].in_flight;
  legs_.got_result(id, node);
}

void GroupOps::delivered(OpId id, std::uint32_t chunk_number) {
  not_delivered(id);
  Op& op = ops_[id];
  if (op.failed()) return;
  legs_.delivered(id, op, chunk_number);
  TERN_CHECK(op.steps_left > 0);
  --op.steps_left;
  end_if_delivered(id);
}

void GroupOps::not_delivered(OpId id) {
  TERN_CHECK(ops_[id].in_flight > 0);
  --ops_[id].in_flight;
}

bool GroupOps::on_verify(std::uint32_t node, const OpKey& key, OpId& id) {
  id = ops_.find(key);
  if (id == kNoSlot) return ops_.superseded(key) || ended();
  Op& op = ops_[id];
  if (op.failed()) {
    id = kNoSlot;
    return true;
  }
  if (op.plan == nullptr || (op.verified & bit(node)) != 0 || !shape_.verify) return false;
  op.verified |= bit(node);
  if (op.verified == low_bits(nodes())) schedule_.complete(id);
  return true;
}

// ---- Look ---------------------------------------------------------------------------------------

std::size_t GroupOps::missing_ranks(OpId id, std::span<std::uint32_t> out) const noexcept {
  const Op& op = ops_[id];
  std::size_t count = 0;
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    const auto& ranks = shape_.ranks[node];
    if (node != shape_.node && (op.announced & bit(node)) != 0) continue;
    const std::uint64_t here = node == shape_.node ? op.submitted : ops_.heard(id, node).told;
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
      if ((here & bit(i)) != 0) continue;
      if (count < out.size()) out[count] = ranks[i];
      ++count;
    }
  }
  return count;
}

}  // namespace tern::collective
