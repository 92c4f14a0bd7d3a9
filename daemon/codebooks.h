#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tern::daemon {

// Installs every *.book file of a directory as a static codebook of the codecs. The number of
// books; 0 for an empty name; an error names the file. Call before any lane runs.
Result<std::size_t> load_codebooks(const std::string& directory);

}  // namespace tern::daemon
