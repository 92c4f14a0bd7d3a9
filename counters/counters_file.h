#pragma once

// The daemon's side of the counters file.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "counters/layout.h"

namespace tern::counters {

// One line of documentation.
struct CounterText {
  std::string_view name;
  std::string_view unit;  // "1", "bytes", "ns", ...
  std::string_view help;  // without a full stop
  Kind kind = Kind::counter;
};

// Counters that lie side by side, as one thread writes them: the n-th text is of the n-th word.
// Each instance has cache lines of its own.
struct Block {
  std::vector<CounterText> texts;
  std::uint32_t instances = 1;
};

struct Writer {
  std::uint64_t pid = 0;
  std::uint64_t started_ns = 0;
  std::string node_id;
  std::string software;
};

// "/run/tern/control.counters" for "/run/tern/control.sock": beside the control socket, so that who
// knows one finds the other.
std::string path_beside(const std::string& control_socket);

class CountersFile {
 public:
  CountersFile() noexcept = default;
  // Takes the place of a file that a dead daemon has left; one that a living daemon writes is
  // Errc::already_exists. The room is allocated here: later stores cannot fail.
  static Result<CountersFile> create(const std::string& path, std::uint32_t mode,
                                     const Writer& writer, std::span<const Block> blocks);
  CountersFile(CountersFile&& other) noexcept;
  CountersFile& operator=(CountersFile&& other) noexcept;
  ~CountersFile();  // removes the file, unless another has taken its place

  // Whether members of the file's group may read it too, which `may` says of that group.
  Status admit_group(const std::function<bool(gid_t)>& may);

  // The words of one instance, all zero at first; they stay mapped as long as this object.
  std::span<std::uint64_t> words(std::size_t block, std::uint32_t instance) const;
  // That the daemon lives, for those who find the file later.
  void touch(std::uint64_t now_ns) noexcept;

 private:
  struct Place {
    std::uint64_t offset = 0, stride = 0;
    std::size_t words = 0;
    std::uint32_t instances = 0;
  };
  void close() noexcept;

  // Locked as long as the daemon lives, which is how readers know, also from another PID namespace.
  Fd fd_;
  std::string path_;
  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::vector<Place> places_;
};

}  // namespace tern::counters
