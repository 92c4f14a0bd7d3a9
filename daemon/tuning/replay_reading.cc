#include "daemon/tuning/replay_reading.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace tern::daemon {

void ReplayReading::read() {
  // A part of a log would be replayed as if it were the whole.
  while (!settled_()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  lanes_ = parse();
  if (lanes_) {
    for (const ReplayedLane& lane : *lanes_) bytes_ += lane.bytes();
  }
  done_.store(true, std::memory_order_release);
  done_.notify_all();
}

tl::unexpected<Error> ReplayReading::misfit(const std::string& what) const {
  return fail(Errc::bad_recipe, "replay: " + terms_.log + ": " + what);
}

std::size_t ReplayReading::index_of(const std::string& recipe) const {
  const auto found = std::find(recipes_.begin(), recipes_.end(), recipe);
  return static_cast<std::size_t>(found - recipes_.begin());
}

Status ReplayReading::check(const tuner::ChoiceLogHead& head) const {
  if (head.cut != terms_.head.cut) {
    return misfit("its tensors were cut by version " + std::to_string(head.cut) +
                  ", those of this group by " + std::to_string(terms_.head.cut) +
                  "; the setting cut of a node decides");
  }
  if (terms_.heeds_eager_form && head.eager_form != terms_.head.eager_form) {
    return misfit("small operations travelled by form " + std::to_string(head.eager_form) +
                  ", in this group by " + std::to_string(terms_.head.eager_form) +
                  "; the setting eager_form of a node decides");
  }
  return {};
}

Status ReplayReading::add(const tuner::LoggedOp& op, Lanes& lanes) const {
  if (op.tensor != terms_.tensor) return {};
  if (op.lane >= lanes.size() || op.reduce.size() + 1 != terms_.nodes) {
    return misfit("it is of a group with other lanes or nodes");
  }
  ReplayedLane& lane = lanes[op.lane];
  lane.ops.push_back({op.use, static_cast<std::uint32_t>(lane.ops.size()),
                      static_cast<std::uint8_t>(std::min(op.probe_chunks, 255u))});
  std::size_t peer = 0;
  for (std::uint32_t node = 0; node < terms_.nodes; ++node) {
    const std::string& recipe = node == terms_.self ? op.broadcast : op.reduce[peer++];
    const std::size_t index = index_of(recipe);
    if (index == recipes_.size()) return misfit(recipe + " is none of the candidates");
    if ((terms_.unusable >> index & 1) != 0) return misfit("this tensor cannot have " + recipe);
    lane.candidates.push_back(static_cast<tuner::CandidateIndex>(index));
  }
  return {};
}

Status ReplayReading::add(const tuner::LoggedChunk& chunk, Lanes& lanes) const {
  if (chunk.tensor != terms_.tensor) return {};
  const std::size_t index = index_of(chunk.recipe);
  if (chunk.lane >= lanes.size() || index == recipes_.size() ||
      (terms_.unusable >> index & 1) != 0) {
    return misfit("a block's lane or recipe is unknown here");
  }
  const auto leg = static_cast<wire::Leg>(chunk.leg);  // as the log has it: ChoiceLogReader checks
  lanes[chunk.lane].chunks.push_back({chunk.use, ReplayedLane::place_of(chunk.chunk, leg),
                                      static_cast<tuner::CandidateIndex>(index)});
  return {};
}

Result<ReplayReading::Lanes> ReplayReading::parse() const {
  std::ifstream file(terms_.path);
  if (!file) {
    return fail(Errc::bad_recipe,
                "replay: " + std::filesystem::path(terms_.path).filename().string() +
                    " cannot be read in choice_directory");
  }
  tuner::ChoiceLogReader reader(file, terms_.most_bytes);
  Lanes lanes(terms_.lanes);
  for (ReplayedLane& lane : lanes) lane.nodes = terms_.nodes;
  for (;;) {
    const auto record = reader.next();
    if (!record) return misfit(record.error().text);
    if (Status fits = check(reader.head()); !fits) return tl::unexpected(fits.error());
    if (std::holds_alternative<tuner::ChoiceLogReader::End>(*record)) break;
    const auto* const op = std::get_if<tuner::LoggedOp>(&*record);
    const Status added =
        op != nullptr ? add(*op, lanes) : add(std::get<tuner::LoggedChunk>(*record), lanes);
    if (!added) return tl::unexpected(added.error());
  }
  // What was chosen later nobody knows, and the results would not have the same bits.
  if (reader.head().incomplete) {
    return misfit(
        "it ended before its run did, as long as a log may be: log a shorter run, or "
        "declare fewer tensors with the recipe auto");
  }
  const auto says_nothing = [](const ReplayedLane& lane) { return lane.ops.empty(); };
  if (std::all_of(lanes.begin(), lanes.end(), says_nothing)) {
    return misfit("it says nothing of " + terms_.tensor);
  }
  for (ReplayedLane& lane : lanes) lane.sort();
  return lanes;
}

}  // namespace tern::daemon
