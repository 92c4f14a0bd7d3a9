#include "daemon/conductor/record_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

namespace tern::daemon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "flight-", kEnd = ".json", kHalf = ".json.new";
constexpr std::size_t kGroupDigits = 8;

// Takes what leads up to the next hyphen, or all.
std::string_view take_part(std::string_view& text) {
  const std::size_t end = text.find('-');
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

std::optional<std::uint32_t> read_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Found {
  fs::file_time_type time;
  std::string name;
  std::uint64_t bytes = 0;
};

}  // namespace

std::string RecordFiles::text_of(const Name& name) {
  std::string text(kBegin);
  text += name.group.substr(0, kGroupDigits) + "-" + std::to_string(name.epoch);
  if (name.user) text += "-" + std::to_string(*name.user);
  return text + std::string(kEnd);
}

std::optional<RecordFiles::Name> RecordFiles::read(std::string_view text) {
  if (!text.starts_with(kBegin) || !text.ends_with(kEnd)) return std::nullopt;
  std::string_view rest = text.substr(kBegin.size(), text.size() - kBegin.size() - kEnd.size());
  const std::string_view group = take_part(rest);
  const bool is_hex = group.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  const auto epoch = read_number(take_part(rest));
  if (group.size() != kGroupDigits || !is_hex || !epoch) return std::nullopt;
  Name name{std::string(group), *epoch, std::nullopt};
  if (!rest.empty()) {
    name.user = read_number(rest);
    if (!name.user) return std::nullopt;
  }
  // Not what reads alike: a leading zero, a hyphen at the end.
  if (text_of(name) != text) return std::nullopt;
  return name;
}

void RecordFiles::use(const std::string& folder) {
  if (folder == folder_) return;
  folder_ = folder;
  users_.clear();
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator one(folder, error), end; !error && one != end; one.increment(error)) {
    const std::string name = one->path().filename().string();
    std::error_code of_file;
    if (one->symlink_status(of_file).type() != fs::file_type::regular) continue;
    if (name.ends_with(kHalf) && read(name.substr(0, name.size() - 4))) {
      fs::remove(one->path(), of_file);
    } else if (read(name)) {
      const auto time = one->last_write_time(of_file);
      const std::uint64_t bytes = one->file_size(of_file);
      if (!of_file) found.push_back({time, name, bytes});
    }
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.time, a.name) < std::tie(b.time, b.name);
  });
  for (const Found& file : found) count(file.name, file.bytes);
  for (auto& [user, files] : users_) trim(files);
}

void RecordFiles::add(const std::string& name, std::uint64_t bytes) {
  count(name, bytes);
  trim(users_[read(name)->user]);
}

void RecordFiles::count(const std::string& name, std::uint64_t bytes) {
  Files& files = users_[read(name)->user];
  const auto same = std::find_if(files.all.begin(), files.all.end(),
                                 [&name](const File& file) { return file.name == name; });
  if (same != files.all.end()) {
    files.bytes -= same->bytes;
    files.all.erase(same);
  }
  files.all.push_back({name, bytes});
  files.bytes += bytes;
}

// The newest stays, whatever its size.
void RecordFiles::trim(Files& files) {
  while (files.all.size() > 1 &&
         (files.all.size() > kFilesPerUser || files.bytes > kBytesPerUser)) {
    const File& oldest = files.all.front();
    std::error_code gone;
    fs::remove(fs::path(folder_) / oldest.name, gone);
    files.bytes -= oldest.bytes;
    files.all.pop_front();
  }
}

}  // namespace tern::daemon
