#include "examples/rendezvous/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace tern::rendezvous {
namespace {

std::string text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file with the id, while ranks join.
class Published {
 public:
  Published(const std::string& path, const tern_group_id& id)
      : path_(path), text_(id.text, strnlen(id.text, sizeof id.text)) {
    const std::string draft = path + ".draft";
    ::unlink(draft.c_str());  // whatever its mode was
    const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool written =
        fd >= 0 && ::write(fd, text_.data(), text_.size()) == static_cast<ssize_t>(text_.size());
    const bool closed = fd >= 0 && ::close(fd) == 0;
    if (!written || !closed || ::rename(draft.c_str(), path.c_str()) != 0) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot write the group id to " + path);
    }
  }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;
  // If it is still this one's.
  ~Published() {
    if (text_in(path_) == text_) ::unlink(path_.c_str());
  }

 private:
  std::string path_, text_;
};

tern_group_id await_id(const std::string& path, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const std::string text = text_in(path);
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

}  // namespace

Group join_by_file(Client& client, const std::string& path, const tern_join_options& options) {
  tern_group_id id = {};
  std::optional<Published> published;
  if (options.rank == 0) {
    id = client.mint();
    published.emplace(path, id);
  } else {
    id = await_id(path, options.timeout_ms == 0 ? std::chrono::minutes(1)  // as join()
                                                : std::chrono::milliseconds(options.timeout_ms));
  }
  return client.join(id, options);
}

Group join_by_file(Client& client, const std::string& path, int rank, int size) {
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  options.rank = rank;
  options.size = size;
  return join_by_file(client, path, options);
}

}  // namespace tern::rendezvous
