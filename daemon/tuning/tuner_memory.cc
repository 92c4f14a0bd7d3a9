#include "daemon/tuning/tuner_memory.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kSaveEveryNs = 60'000'000'000;
constexpr std::size_t kPieceBytes = 64 << 10;  // goes to the disk at once

}  // namespace

TunerMemory::TunerMemory(std::string file, const Clock& clock, Disposal& writing)
    : file_(std::move(file)), clock_(clock), writing_(writing), saved_ns_(clock.now_ns()) {}

void TunerMemory::load(tuner::Tuner& tuner) const {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  std::ifstream file(file_);
  const auto document = nlohmann::json::parse(file, nullptr, false);
  const Status recalled = document.is_discarded()
                              ? Status(fail(Errc::corrupt_data, "it is not a JSON document"))
                              : tuner.recall(document);
  if (recalled) return;
  spdlog::warn("what the tuner had learnt is lost: {}: {}", file_, recalled.error().text);
}

bool TunerMemory::is_due() const noexcept {
  return !file_.empty() && (save_ || (!saved_ && clock_.now_ns() >= saved_ns_ + kSaveEveryNs));
}

void TunerMemory::save_some(const tuner::Tuner& tuner, const TimeSlice& slice) {
  if (!save_) save_.emplace(tuner, LateFile::replacement(writing_, file_));
  do {
    const bool more = save_->text.go_on();
    if (!more || save_->text.text_bytes() >= kPieceBytes) {
      save_->out.append(save_->text.take_text());
    }
    if (more) continue;
    save_->out.append("\n");
    save_->out.finish();
    saved_ = std::move(save_->out);
    save_.reset();
    saved_ns_ = clock_.now_ns();
    return tell_problem();
  } while (!slice.is_over());
}

void TunerMemory::tell_problem() {
  if (!saved_ || !saved_->is_done()) return;
  const std::string problem = saved_->problem();
  saved_.reset();
  if (problem.empty()) return;
  spdlog::warn("cannot write what the tuner has learnt to {}: {}; what it had learnt before stays",
               file_, problem);
}

void TunerMemory::save(const tuner::Tuner& tuner) {
  if (file_.empty()) return;
  save_.reset();
  do {
    save_some(tuner, TimeSlice(clock_, kSaveEveryNs));
  } while (save_);
  tell_problem();
}

}  // namespace tern::daemon
