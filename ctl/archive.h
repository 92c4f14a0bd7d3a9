#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::ctl {

struct ArchivedFile {
  std::string name;
  std::string text;
};

// One member of a tar archive (POSIX ustar), header and padding included; archive_end() ends it.
// The format has room for a name of 100 bytes, or for 100 behind a slash and 155 before it.
Result<std::string> tar_member(const ArchivedFile& file, std::int64_t modified_s);
std::string archive_end();

// As gzip makes it.
Result<std::string> gzipped(std::string_view bytes);

}  // namespace tern::ctl
