#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::ctl {

// A file that is there whole or not at all, and its user's alone: it gets its name when it is
// complete. It may take the place of a regular file of the same user. "-", the standard output, and
// devices of this user or of root, such as /dev/null, are written as it comes. Everything else is
// refused: a pipe, a link or a terminal of somebody else would hand him what is written.
class OutputFile {
 public:
  // Fails where nothing could be written, before anything is lost.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without finish(): what was written is removed

  void write(std::string_view bytes);
  // The first error of all writes, or the file under its name.
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  OutputFile() = default;

  std::unique_ptr<std::FILE, Close> file_;
  std::string path_, partial_;  // partial_ empty: it is written as it comes
  int error_ = 0;
};

}  // namespace tern::ctl
