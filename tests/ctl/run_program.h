#pragma once

#include <string>
#include <vector>

namespace tern::ctl {

struct ProgramResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::vector<std::string> environment;
  // Runs as user and group 65534, for which a test must be root.
  bool as_nobody = false;
};

// Runs the program to its end and collects what it wrote. A defect of the test itself is exit code
// -1.
ProgramResult run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});

}  // namespace tern::ctl
