#include "daemon/lane/copy_watch.h"

#include <algorithm>
#include <cstdio>

#include "codec/recipe.h"

namespace tern::daemon {

using collective::OpId;

void CopyWatch::begin(const Rank& who, const shm::SubmitEntry& entry, const LaneClient& client) {
  if ((entry.flags & shm::kEntryHasProgress) == 0) return;
  const shm::CopyProgress progress(client.arena.base + entry.progress_offset,
                                   {core_.setup().shape.lanes, entry.progress_records});
  copies_.write(who.op, who.local_rank) =
      MemoryCopy(entry, progress, *client.memory, core_.now_ns());
  if (input_bytes(who) == 0) return;
  ++arriving_of_[who.op];
  // An op that was there before may not have been looked at since it ended.
  std::erase_if(arriving_, [&who](const Rank& one) {
    return one.op == who.op && one.local_rank == who.local_rank;
  });
  arriving_.push_back(who);
}

bool CopyWatch::is_over(OpId op) const noexcept {
  return !core_.ops().table().in_use(op) || core_.op(op).failed() || arriving_of_[op] == 0;
}

void CopyWatch::forget(OpId op) noexcept {
  copies_.clear(op);
  arriving_of_[op] = 0;
}

bool CopyWatch::look() {
  bool moved = false;
  bool some_end = false;
  for (const Rank& one : arriving_) {
    moved = (!is_over(one.op) && look_at(one)) || moved;
    if (!has_ended(one)) continue;
    some_end = true;
    begin_next(one.local_rank);
  }
  if (some_end) std::erase_if(arriving_, [this](const Rank& one) { return has_ended(one); });
  return moved;
}

bool CopyWatch::has_ended(const Rank& one) const noexcept {
  return is_over(one.op) || has_input(one);
}

// Of the copies of a rank one has ended, or its op has: the others have stood still since then at
// most.
void CopyWatch::begin_next(std::uint32_t local_rank) noexcept {
  for (const Rank& one : arriving_) {
    if (one.local_rank != local_rank || is_over(one.op)) continue;
    copies_.write(one.op, local_rank).begin_next(core_.now_ns());
  }
}

bool CopyWatch::look_at(const Rank& one) {
  if (has_input(one)) return false;
  MemoryCopy& copy = copies_.write(one.op, one.local_rank);
  MemoryCopy::Problem problem;
  if (!copy.look(input_bytes(one), core_.now_ns(), problem)) return false;
  if (problem) {
    fail(one, Errc::invalid_argument, problem.text());
  } else if (has_input(one)) {
    --arriving_of_[one.op];
  }
  return true;
}

bool CopyWatch::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  const bool moved = look();
  for (const Rank& one : arriving_) {
    if (is_over(one.op)) continue;
    const auto problem = copy_of(one).stall(input_bytes(one), now_ns, timeout_ns);
    if (problem) fail(one, Errc::op_timeout, problem.text());
  }
  return moved;
}

void CopyWatch::fail(const Rank& one, Errc code, const char* text) {
  const std::uint32_t number = core_.setup().shape.ranks[core_.self()][one.local_rank];
  char whole[184];
  std::snprintf(whole, sizeof(whole), "rank %u: %s", number, text);
  core_.ops().fail(one.op, {code, number, whole});
}

bool CopyWatch::has_all(OpId op) const noexcept { return arriving_of_[op] == 0; }

bool CopyWatch::has(OpId op, std::uint32_t chunk) const noexcept {
  if (has_all(op)) return true;
  const LaneOp& data = core_.lane_op(op);
  const collective::Op& about = core_.op(op);
  // One scale for a whole tensor is found by a scan of all of it.
  const bool scans = data.encoding.lossy && codec::scans_tensor(data.encoding.recipe);
  if (scans || about.plan->input_piece != nullptr) return false;
  const plan::Range elements{about.chunks.begin(chunk), about.chunks.size(chunk)};
  const std::size_t element = core_.bytes(op, 1);
  const auto ranks = core_.lane_ops().ranks(op);
  const auto& numbers = core_.setup().shape.ranks[core_.self()];
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    const OpRank& rank = ranks[i];
    const MemoryCopy& copy = copy_of({op, i});
    if (has_input({op, i}) || !rank.sends(elements)) continue;
    const std::uint64_t end = copy.shares_down()
                                  ? about.chunks.end_of_shares_down(numbers[i], chunk)
                                  : elements.end() - rank.extents.input.begin;
    if (end * element > copy.input_bytes()) return false;
  }
  return true;
}

void CopyWatch::on_block(const BlockRequest& request, const BlockCompletion& completion,
                         std::span<LaneClient* const> clients) noexcept {
  const bool makes = request.verb == BlockVerb::finish ||
                     request.verb == BlockVerb::finish_parked || request.verb == BlockVerb::publish;
  if (!makes && request.verb != BlockVerb::deliver) return;
  const collective::ChunkMap& chunks = core_.op(request.op).chunks;
  if (completion.problem != nullptr || completion.form == BlockForm::parked ||
      !chunks.goes_to(core_.self(), request.number)) {
    return;
  }
  deliver(request.op, {chunks.result_begin(request.number), chunks.size(request.number)}, clients);
}

void CopyWatch::deliver(OpId op, const plan::Range& elements,
                        std::span<LaneClient* const> clients) noexcept {
  const std::size_t element = core_.bytes(op, 1);
  const auto ranks = core_.lane_ops().ranks(op);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    const bool listed = copy_of({op, i}).exists() && clients[i] != nullptr;
    if (!listed || !ranks[i].receives(elements)) continue;
    const std::uint64_t begin = elements.begin - ranks[i].extents.output.begin;
    if (copies_.write(op, i).deliver(core_.setup().shape.lane,
                                     {begin * element, elements.count * element})) {
      clients[i]->rang = true;
    }
  }
}

}  // namespace tern::daemon
