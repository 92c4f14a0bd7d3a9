#pragma once

// Where daemons write the tuner's logs of choices: a folder for each of two nodes. It is there
// before a cluster has one.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace tern::e2e {

class ChoiceDirectories {
 public:
  std::string of(int node) const {
    std::string path = folder_.path() + "/logs" + std::to_string(node);
    std::filesystem::create_directory(path);
    return path;
  }
  // For each node's command line.
  std::vector<std::vector<std::string>> options() const {
    return {{"--choice-directory", of(0)}, {"--choice-directory", of(1)}};
  }

  // The log of the only group so far, as a name for recipe=replay:. Empty if there is none.
  std::string only_log() const {
    std::string name;
    for (const auto& entry : std::filesystem::directory_iterator(of(0))) {
      EXPECT_TRUE(name.empty()) << "more than one log";
      name = entry.path().filename().string();
    }
    const std::string end = "-0.log";
    return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : "";
  }

  // The same log for both nodes.
  void write(const std::string& name, const std::string& records) const {
    for (int node = 0; node < 2; ++node) {
      std::ofstream(of(node) + "/" + name + "-" + std::to_string(node) + ".log")
          << "tern-choices 1\ncut 3\n"
          << records;
    }
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace tern::e2e
