#include "daemon/tuning/tuner_memory.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/control/foreign_json.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kSaveEveryNs = 60'000'000'000;

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
  return !file_.empty() && clock_.now_ns() >= saved_ns_ + kSaveEveryNs;
}

void TunerMemory::save(const tuner::Tuner& tuner) {
  saved_ns_ = clock_.now_ns();
  if (file_.empty()) return;
  const std::string fresh = file_ + ".new";
  std::ofstream file(fresh);
  file << json_text(tuner.remember()) << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(fresh, file_, error);
  if (file && !error) return;
  spdlog::warn("cannot write what the tuner has learnt to {}: {}; what it had learnt before stays",
               fresh, error ? error.message() : std::strerror(errno));
  std::filesystem::remove(fresh, error);
}

}  // namespace tern::daemon
