#include "bench/group_id_file.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace tern::bench {

void publish_group_id(const std::string& path, const tern_group_id& id) {
  const std::string draft = path + ".draft";
  std::ofstream file(draft, std::ios::binary);
  file << id.text;
  file.close();
  if (!file) throw std::runtime_error(draft + " cannot be written");
  std::filesystem::rename(draft, path);
}

tern_group_id await_group_id(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    tern_group_id id = {};
    if (!text.empty() && text.size() < sizeof id.text) {
      text.copy(id.text, text.size());
      return id;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("no group id in " + path + "; is rank 0 running?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace tern::bench
