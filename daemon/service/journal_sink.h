#pragma once

// The log as systemd's journal takes it: one entry a line, with its severity and with the fields of
// daemon/service/log.h.

#include <spdlog/sinks/sink.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/service/log.h"

namespace tern::daemon {

// True if stderr is a stream to the journal: what is written there ends up in it as bare text.
bool stderr_is_journal();

// `NAME=value` for each field of the entry, as base/printable.h has it. Empty fields are left out.
std::vector<std::string> journal_entry(spdlog::level::level_enum level, std::string_view text,
                                       const LogFields& fields);

std::shared_ptr<spdlog::sinks::sink> make_journal_sink();

}  // namespace tern::daemon
