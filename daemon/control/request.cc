#include "daemon/control/request.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/control/foreign_json.h"
#include "wire/versions.h"

namespace tern::daemon {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxVerbBytes = 64;

std::string line_of(const json& answer) { return json_text(answer) + '\n'; }

json envelope(const json& id) { return {{"v", wire::kControlProtocol}, {"id", id}}; }

std::string error_line(const json& id, Errc code, std::string_view text) {
  json answer = envelope(id);
  answer["ok"] = false;
  answer["error"] = {{"code", errc_name(code)}, {"text", text}};
  return line_of(answer);
}

ControlAnswer refuse(const json& id, Errc code, std::string_view text) {
  return {error_line(id, code, text), true};
}

// An exception of the handler is a defect, but not a reason to end the daemon and all its jobs.
RowSource rows_of(ControlVerbs& handler, std::string_view verb, const Credentials& credentials) {
  try {
    return handler.rows(verb, credentials);
  } catch (const std::exception&) {
    return nullptr;  // call() says what is wrong
  }
}

Result<json> call(ControlVerbs& handler, std::string_view verb, const json& args,
                  const Credentials& credentials) {
  try {
    return handler.handle(verb, args, credentials);
  } catch (const std::exception& error) {
    return fail(Errc::internal, error.what());
  }
}

}  // namespace

std::string error_line(Errc code, std::string_view text) { return error_line(json(), code, text); }

ControlAnswer answer_request(std::string_view line, const Credentials& credentials,
                             ControlVerbs& handler, std::size_t max_answer_bytes) {
  if (const char* objection = objection_to_json(line)) {
    return refuse(json(), Errc::protocol_error, std::string("the line ") + objection);
  }
  const json request = json::parse(line, nullptr, false);
  if (!request.is_object()) {
    return refuse(json(), Errc::protocol_error, "the line is not a JSON object");
  }
  // Only a number is repeated in the answer: anything else could be deep or large.
  const auto id_at = request.find("id");
  const json id = id_at != request.end() && id_at->is_number_unsigned() ? *id_at : json();
  const auto version = request.find("v");
  if (version == request.end() || !version->is_number_unsigned()) {
    return refuse(id, Errc::protocol_error, "\"v\" must be the version of the protocol, a number");
  }
  if (version->get<std::uint64_t>() != wire::kControlProtocol) {
    return refuse(id, Errc::version_mismatch,
                  "this daemon speaks version " + std::to_string(wire::kControlProtocol) +
                      " of the control protocol");
  }
  if (id.is_null()) return refuse(id, Errc::protocol_error, "\"id\" must be a number");
  const auto verb_at = request.find("verb");
  const bool has_verb = verb_at != request.end() && verb_at->is_string() &&
                        verb_at->get_ref<const std::string&>().size() <= kMaxVerbBytes;
  if (!has_verb) {
    return refuse(id, Errc::protocol_error, "\"verb\" must be a text of up to 64 bytes");
  }
  const auto args_at = request.find("args");
  const json args = args_at == request.end() ? json::object() : *args_at;
  if (!args.is_object()) return refuse(id, Errc::protocol_error, "\"args\" must be an object");

  const std::string& verb = verb_at->get_ref<const std::string&>();
  json answer = envelope(id);
  answer["ok"] = true;
  if (RowSource rows = rows_of(handler, verb, credentials)) {
    std::string head = json_text(answer);
    head.back() = ',';
    return {head + R"("result":[)", false, std::move(rows)};
  }
  auto result = call(handler, verb, args, credentials);
  if (!result) return {error_line(id, result.error().code, result.error().text), false};
  answer["result"] = *std::move(result);
  std::string text = line_of(answer);
  if (text.size() > max_answer_bytes) {
    return {error_line(id, Errc::quota_exceeded,
                       "the answer has " + std::to_string(text.size()) + " bytes; at most " +
                           std::to_string(max_answer_bytes) + " are sent"),
            false};
  }
  return {std::move(text), false};
}

void go_on(ControlAnswer& answer) {
  answer.line.clear();
  json rows = json::array();
  bool more = false;
  try {
    more = answer.rows(rows);
  } catch (const std::exception&) {
    // What has been sent of the line cannot be taken back.
    answer.rows = nullptr;
    answer.close = true;
    return;
  }
  for (const json& row : rows) {
    if (std::exchange(answer.has_rows, true)) answer.line += ',';
    answer.line += json_text(row);
  }
  if (more) return;
  answer.line += "]}\n";
  answer.rows = nullptr;
}

}  // namespace tern::daemon
