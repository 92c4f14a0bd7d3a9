#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tern::ctl {

// What Perfetto's JSON importer asks of a trace ("Trace Event Format"): every event has ph, pid,
// tid and, but for metadata, ts; X has dur; every b has its e, of the same category and id, not
// before it; slices of one thread nest. Empty, or the first thing that is wrong.
std::string trace_fault(const nlohmann::json& document);

}  // namespace tern::ctl
