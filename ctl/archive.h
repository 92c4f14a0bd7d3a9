#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::ctl {

struct ArchivedFile {
  std::string name;  // at most 99 bytes
  std::string text;
};

// One member of a tar archive (POSIX ustar), header and padding included; archive_end() ends it.
std::string tar_member(const ArchivedFile& file, std::int64_t modified_s);
std::string archive_end();

// As gzip makes it.
Result<std::string> gzipped(std::string_view bytes);

}  // namespace tern::ctl
