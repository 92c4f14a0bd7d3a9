#include "tuner/choice_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

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

using Record = ChoiceLogReader::Record;
using Words = std::vector<std::string_view>;

// These are null, or what is wrong.
const char* parse_op(const Words& words, Record& record) {
  LoggedOp op;
  if (words.size() < 7) return "an op record has at least six fields";
  if (!unescape(words[1], op.tensor)) return "the tensor's name cannot be read";
  if (!read(words[2], op.use) || !read(words[3], op.lane) || !read(words[4], op.probe_chunks)) {
    return "use, lane and probe are numbers";
  }
  op.broadcast = words[5];
  op.reduce.assign(words.begin() + 6, words.end());
  record = std::move(op);
  return nullptr;
}

const char* parse_chunk(const Words& words, Record& record) {
  LoggedChunk chunk;
  if (words.size() != 7) return "a chunk record has six fields";
  if (!unescape(words[1], chunk.tensor)) return "the tensor's name cannot be read";
  if (!read(words[2], chunk.use) || !read(words[3], chunk.lane) || !read(words[4], chunk.leg) ||
      !read(words[5], chunk.chunk)) {
    return "use, lane, leg and chunk are numbers";
  }
  if (chunk.leg != 1 && chunk.leg != 2) return "leg is 1 or 2";
  chunk.recipe = words[6];
  record = std::move(chunk);
  return nullptr;
}

// No record, and it stays as it was: the line is of the head.
const char* parse_line(std::string_view line, ChoiceLogHead& head, Record& record) {
  const Words words = words_of(line);
  if (words.size() < 2) return "a record has a kind and fields";
  if (std::find(words.begin(), words.end(), "") != words.end()) return "a field is empty";
  if (words[0] == "cut") {
    return words.size() == 2 && read(words[1], head.cut) ? nullptr : "cut has a number";
  }
  if (words[0] == "eager_form") {
    const bool sound = words.size() == 2 && read(words[1], head.eager_form);
    return sound ? nullptr : "eager_form has a number";
  }
  if (words[0] == "incomplete") {
    head.incomplete = true;
    return words.size() == 2 ? nullptr : "incomplete has one field";
  }
  if (words[0] == "op") return parse_op(words, record);
  if (words[0] == "chunk") return parse_chunk(words, record);
  return "a record is of kind cut, eager_form, op, chunk or incomplete";
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

std::string choice_log_incomplete() { return "incomplete limit\n"; }

tl::unexpected<Error> ChoiceLogReader::failure(const std::string& problem) const {
  return fail(Errc::invalid_argument,
              fmt::format("line {}: {}", std::max(lines_, std::uint64_t{1}), problem));
}

Result<bool> ChoiceLogReader::next_line(std::string_view& line) {
  log_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (log_.bad()) return failure("what follows cannot be read");
  // A log that was cut off in the middle of a line (a killed daemon) is good up to there.
  if (log_.eof()) return false;
  ++lines_;
  if (log_.fail()) return failure(fmt::format("it is longer than {} bytes", kMostLine));
  const auto bytes = static_cast<std::size_t>(log_.gcount());
  bytes_ += bytes;
  if (bytes_ > most_bytes_) {
    return failure(
        fmt::format("the log is longer than {} bytes: replay a shorter run", most_bytes_));
  }
  line = std::string_view(buffer_).substr(0, bytes - 1);
  return true;
}

Result<ChoiceLogReader::Record> ChoiceLogReader::next() {
  std::string_view line;
  for (;;) {
    const Result<bool> more = next_line(line);
    if (!more) return tl::unexpected(more.error());
    if (!*more) break;
    if (lines_ == 1) {
      if (line == kHead) continue;
      return failure(fmt::format("a log of choices of this version begins with \"{}\"", kHead));
    }
    Record record = End{};
    if (const char* const problem = parse_line(line, head_, record)) return failure(problem);
    if (!std::holds_alternative<End>(record)) return record;
  }
  if (lines_ == 0) return failure("the log of choices is empty");
  return End{};
}

Result<ChoiceLog> parse_choice_log(const std::string& text) {
  std::istringstream stream(text);
  ChoiceLogReader reader(stream);
  ChoiceLog log;
  for (;;) {
    auto record = reader.next();
    if (!record) return tl::unexpected(record.error());
    if (std::holds_alternative<ChoiceLogReader::End>(*record)) break;
    if (auto* const op = std::get_if<LoggedOp>(&*record)) {
      log.ops.push_back(std::move(*op));
    } else {
      log.chunks.push_back(std::move(std::get<LoggedChunk>(*record)));
    }
  }
  static_cast<ChoiceLogHead&>(log) = reader.head();
  return log;
}

}  // namespace tern::tuner
