#include "tests/e2e/unpacked.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/ctl/run_program.h"

namespace tern::e2e {

namespace fs = std::filesystem;

std::string unpacked(const std::string& archive, const std::string& into) {
  fs::create_directory(into);
  const auto tar = ctl::run_program("/usr/bin/tar", {"xzf", archive, "-C", into});
  EXPECT_EQ(tar.exit_code, 0) << tar.err;
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(into)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    all += "\n==== " + entry.path().filename().string() + "\n";
    all.append(std::istreambuf_iterator<char>(file), {});
  }
  return all;
}

}  // namespace tern::e2e
