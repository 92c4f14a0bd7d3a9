#include "counters/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/fd.h"
#include "counters/writer_lock.h"

namespace tern::counters {
namespace {

// Of a field that should end with a zero; what steers a terminal becomes '?'.
template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  std::string text(field, ::strnlen(field, kBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// Things in a file, as it says.
struct Array {
  std::uint64_t offset;
  std::uint64_t count;
  std::uint64_t stride;
  std::uint64_t each;  // bytes
};

// Whether all of them lie before `end`.
bool fits(const Array& array, std::uint64_t end) {
  const auto& [offset, count, stride, each] = array;
  if (count == 0 || offset > end || each > end - offset) return false;
  return count == 1 || (stride >= each && stride <= (end - offset - each) / (count - 1));
}

tl::unexpected<Error> not_sound(const char* what) {
  return fail(Errc::corrupt_data, std::string("not a counters file of a ternd: ") + what);
}

Status read_whole(int fd, std::vector<std::byte>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(Errc::io_error, "read", errno);
    if (count == 0) break;  // shortened meanwhile: parsing says so
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return {};
}

}  // namespace

std::uint64_t Counter::value() const noexcept {
  return std::accumulate(instances.begin(), instances.end(), std::uint64_t{0});
}

Result<Snapshot> parse_counters(std::span<const std::byte> bytes) {
  FileHeader header;
  if (bytes.size() < sizeof(header)) return not_sound("it is too short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return not_sound("it begins with something else");
  if (header.version == 0) return not_sound("its daemon died before it was complete");
  if (header.version != kVersion) {
    return fail(Errc::version_mismatch,
                "the counters file has version " + std::to_string(header.version) +
                    "; this reads " + std::to_string(kVersion) + ": use the ternctl of that ternd");
  }
  if (header.file_bytes > bytes.size()) return not_sound("it has been cut");
  const std::uint64_t end = header.file_bytes;
  if (header.counter_count > kMaxCounters || header.header_bytes < sizeof(header) ||
      !fits({header.descriptors_offset, header.counter_count, header.descriptor_bytes,
             sizeof(Descriptor)},
            end)) {
    return not_sound("its descriptors lie outside of it");
  }
  Snapshot snapshot;
  snapshot.pid = header.pid;
  snapshot.started_ns = header.started_ns;
  snapshot.written_ns = header.written_ns;
  snapshot.node_id = text_of(header.node_id);
  snapshot.software = text_of(header.software);
  for (std::uint32_t i = 0; i < header.counter_count; ++i) {
    Descriptor descriptor;
    std::memcpy(
        &descriptor,
        bytes.data() + header.descriptors_offset + std::uint64_t{i} * header.descriptor_bytes,
        sizeof(descriptor));
    if (descriptor.instances > kMaxInstances || descriptor.kind > 1 ||
        !fits({descriptor.offset, descriptor.instances, descriptor.stride, sizeof(std::uint64_t)},
              end)) {
      return not_sound("a counter lies outside of it");
    }
    Counter counter{text_of(descriptor.name),
                    text_of(descriptor.unit),
                    text_of(descriptor.help),
                    static_cast<Kind>(descriptor.kind),
                    {}};
    for (std::uint32_t instance = 0; instance < descriptor.instances; ++instance) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + descriptor.offset + instance * descriptor.stride,
                  sizeof(value));
      counter.instances.push_back(value);
    }
    snapshot.counters.push_back(std::move(counter));
  }
  return snapshot;
}

Result<Snapshot> read_counters(const std::string& path) {
  // Not to wait on a pipe that lies there.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    const bool refused = errno == EACCES || errno == EPERM;
    return fail_errno(refused           ? Errc::permission_denied
                      : errno == ENOENT ? Errc::daemon_absent
                                        : Errc::io_error,
                      path, errno);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail_errno(Errc::io_error, path, errno);
  if (!S_ISREG(info.st_mode) || info.st_size < 0 ||
      static_cast<std::uint64_t>(info.st_size) > kMaxFileBytes) {
    return fail(Errc::corrupt_data, path + ": not a counters file of a ternd");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  if (auto status = read_whole(fd.get(), bytes); !status) {
    return fail(status.error().code, path + ": " + status.error().text);
  }
  auto snapshot = parse_counters(bytes);
  if (!snapshot) return fail(snapshot.error().code, path + ": " + snapshot.error().text);
  snapshot->alive = is_written(fd.get());
  return snapshot;
}

}  // namespace tern::counters
