#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tern::daemon {

// The flight records in a folder: so many files and bytes of each user, of whom the oldest go
// first. Other files of the folder are not looked at.
class RecordFiles {
 public:
  static constexpr std::size_t kFilesPerUser = 32;
  static constexpr std::uint64_t kBytesPerUser = std::uint64_t{8} << 20;

  // What a name says. A record of before names no user: all of them are one user's.
  struct Name {
    std::string group;
    std::uint32_t epoch = 0;
    std::optional<std::uint32_t> user;
  };
  static std::string text_of(const Name& name);
  // Nothing: it is not one of ours.
  static std::optional<Name> read(std::string_view text);

  // Counts what lies there, and removes what is too much or was left half written. Does nothing if
  // the folder is the one of before.
  void use(const std::string& folder);
  // A record has been written or replaced. REQUIRES: use(), and a name of text_of().
  void add(const std::string& name, std::uint64_t bytes);

 private:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
  };
  struct Files {
    std::list<File> all;  // the oldest first
    std::uint64_t bytes = 0;
  };

  void count(const std::string& name, std::uint64_t bytes);
  void trim(Files& files);

  std::string folder_;
  std::map<std::optional<std::uint32_t>, Files> users_;
};

}  // namespace tern::daemon
