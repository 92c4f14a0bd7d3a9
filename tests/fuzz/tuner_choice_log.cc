// A log of choices that somebody has edited: what parses can be written, and read again as the
// same.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "tuner/choice_log.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto log = tuner::parse_choice_log(text);
  if (!log) {
    TERN_CHECK(log.error().text.starts_with("line "));
    return 0;
  }
  std::string again = tuner::choice_log_head(log->cut);
  for (const tuner::LoggedOp& op : log->ops) again += tuner::format(op);
  for (const tuner::LoggedChunk& chunk : log->chunks) again += tuner::format(chunk);
  const auto second = tuner::parse_choice_log(again);
  TERN_CHECK(second.has_value());
  TERN_CHECK(second->ops == log->ops && second->chunks == log->chunks && second->cut == log->cut);
  return 0;
}
