#include "daemon/tuning/tuner_memory.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kSaveEveryNs = 60'000'000'000;
constexpr std::size_t kPieceBytes = 64 << 10;  // goes to the disk at once

}  // namespace

TunerMemory::TunerMemory(std::string file, const Clock& clock)
    : file_(std::move(file)), clock_(clock), saved_ns_(clock.now_ns()) {}

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
  return !file_.empty() && (save_ || clock_.now_ns() >= saved_ns_ + kSaveEveryNs);
}

void TunerMemory::save_some(const tuner::Tuner& tuner, const TimeSlice& slice) {
  if (!save_) save_.emplace(tuner, unfinished());
  do {
    const bool more = save_->text.go_on();
    if (!more || save_->text.text_bytes() >= kPieceBytes) save_->out << save_->text.take_text();
    if (!more) return finish();
  } while (!slice.is_over());
}

void TunerMemory::save(const tuner::Tuner& tuner) {
  if (file_.empty()) return;
  save_.reset();
  do {
    save_some(tuner, TimeSlice(clock_, kSaveEveryNs));
  } while (save_);
}

void TunerMemory::finish() {
  save_->out << "\n";
  save_->out.close();
  const bool written = save_->out.good();
  save_.reset();
  saved_ns_ = clock_.now_ns();
  std::error_code error;
  if (written) std::filesystem::rename(unfinished(), file_, error);
  if (written && !error) return;
  spdlog::warn("cannot write what the tuner has learnt to {}: {}; what it had learnt before stays",
               unfinished(), error ? error.message() : std::strerror(errno));
  std::filesystem::remove(unfinished(), error);
}

}  // namespace tern::daemon
