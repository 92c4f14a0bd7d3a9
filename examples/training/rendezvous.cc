#include "examples/training/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace tern::training {

void publish_group_id(const std::string& path, const tern_group_id& id) {
  const std::string draft = path + ".draft";
  const std::string_view text(id.text, strnlen(id.text, sizeof id.text));
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = fd >= 0 && ::close(fd) == 0;
  if (!written || !closed || ::rename(draft.c_str(), path.c_str()) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write the group id to " + path);
  }
}

tern_group_id await_group_id(const std::string& path, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    tern_group_id id = {};
    if (!text.empty() && text.size() < sizeof id.text) {
      std::copy(text.begin(), text.end(), id.text);
      return id;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("no group id in " + path + "; is rank 0 running?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace tern::training
