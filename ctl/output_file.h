#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::ctl {

// A file that is there whole or not at all: it gets its name when it is complete. What is no
// regular file, a pipe or a terminal, is written as it comes; "-" is the standard output.
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
  std::string path_, partial_;  // partial_ empty: written in place
  int error_ = 0;
};

}  // namespace tern::ctl
