#include "tuner/choice_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tern::tuner {
namespace {

constexpr std::string_view kHead = "tern-choices 1";

std::string escaped(std::string_view name) {
  std::string text;
  for (const char one : name) {
    const auto byte = static_cast<unsigned char>(one);
    if (byte <= ' ' || byte == '%' || byte == 0x7f) {
      text += fmt::format("%{:02x}", byte);
    } else {
      text += one;
    }
  }
  return text;
}

bool unescape(std::string_view text, std::string& name) {
  name.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() ||
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr !=
            text.data() + i + 3) {
      return false;
    }
    name += static_cast<char>(value);
    i += 2;
  }
  return !name.empty();
}

template <typename Number>
bool read(std::string_view text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc{} && result.ptr == text.data() + text.size() && !text.empty();
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// Null, or what is wrong.
const char* parse_line(std::string_view line, ChoiceLog& log) {
  const auto words = words_of(line);
  if (words.size() < 2) return "a record has a kind and fields";
  if (std::find(words.begin(), words.end(), "") != words.end()) return "a field is empty";
  if (words[0] == "cut") {
    return words.size() == 2 && read(words[1], log.cut) ? nullptr : "cut has a number";
  }
  if (words[0] == "eager_form") {
    const bool sound = words.size() == 2 && read(words[1], log.eager_form);
    return sound ? nullptr : "eager_form has a number";
  }
  if (words[0] == "op") {
    LoggedOp op;
    if (words.size() < 7) return "an op record has at least six fields";
    if (!unescape(words[1], op.tensor)) return "the tensor's name cannot be read";
    if (!read(words[2], op.use) || !read(words[3], op.lane) || !read(words[4], op.probe_chunks)) {
      return "use, lane and probe are numbers";
    }
    op.broadcast = words[5];
    op.reduce.assign(words.begin() + 6, words.end());
    log.ops.push_back(std::move(op));
    return nullptr;
  }
  if (words[0] != "chunk") return "a record is of kind cut, eager_form, op or chunk";
  LoggedChunk chunk;
  if (words.size() != 7) return "a chunk record has six fields";
  if (!unescape(words[1], chunk.tensor)) return "the tensor's name cannot be read";
  if (!read(words[2], chunk.use) || !read(words[3], chunk.lane) || !read(words[4], chunk.leg) ||
      !read(words[5], chunk.chunk)) {
    return "use, lane, leg and chunk are numbers";
  }
  if (chunk.leg != 1 && chunk.leg != 2) return "leg is 1 or 2";
  chunk.recipe = words[6];
  log.chunks.push_back(std::move(chunk));
  return nullptr;
}

}  // namespace

std::string choice_log_head(std::uint32_t cut, std::uint32_t eager_form) {
  std::string head = fmt::format("{}\n", kHead);
  if (cut != 1) head += fmt::format("cut {}\n", cut);
  if (eager_form != 1) head += fmt::format("eager_form {}\n", eager_form);
  return head;
}

std::string format(const LoggedOp& op) {
  return fmt::format("op {} {} {} {} {} {}\n", escaped(op.tensor), op.use, op.lane, op.probe_chunks,
                     op.broadcast, fmt::join(op.reduce, " "));
}

std::string format(const LoggedChunk& chunk) {
  return fmt::format("chunk {} {} {} {} {} {}\n", escaped(chunk.tensor), chunk.use, chunk.lane,
                     chunk.leg, chunk.chunk, chunk.recipe);
}

Result<ChoiceLog> parse_choice_log(std::string_view text) {
  ChoiceLog log;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    // A log that was cut off in the middle of a line (a killed daemon) is good up to there.
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++number;
    if (number == 1) {
      if (line == kHead) continue;
      return fail(
          Errc::invalid_argument,
          fmt::format("line 1: a log of choices of this version begins with \"{}\"", kHead));
    }
    if (const char* problem = parse_line(line, log)) {
      return fail(Errc::invalid_argument, fmt::format("line {}: {}", number, problem));
    }
  }
  if (number == 0) return fail(Errc::invalid_argument, "line 1: the log of choices is empty");
  return log;
}

}  // namespace tern::tuner
