#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/control/control_verbs.h"

namespace tern::daemon {

// What one line of a client leads to.
struct ControlAnswer {
  std::string line;          // with its line feed, or what there is of it yet
  bool close = false;        // the line was no request: close after the answer
  RowSource rows = nullptr;  // of which the rest of the line is made; null: it is whole
  bool has_rows = false;
};

// Reads one request (without line feed), asks the handler and writes the answer. Any bytes are
// welcome.
ControlAnswer answer_request(std::string_view line, const Credentials& credentials,
                             ControlVerbs& handler, std::size_t max_answer_bytes);

// The line becomes the next piece of the answer, which may be empty. REQUIRES: it has rows.
void go_on(ControlAnswer& answer);

// The line for an error that belongs to no request.
std::string error_line(Errc code, std::string_view text);

}  // namespace tern::daemon
