#include "counters/counters_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "counters/writer_lock.h"

namespace tern::counters {
namespace {

// Two cache lines: processors fetch them in pairs.
constexpr std::uint64_t kAlignment = 128;

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <std::size_t kBytes>
void copy_text(char (&to)[kBytes], std::string_view text) {
  TERN_CHECK(text.size() < kBytes);
  std::memcpy(to, text.data(), text.size());
}

bool is_in_use(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  return fd && is_written(fd.get());
}

}  // namespace

std::string path_beside(const std::string& control_socket) {
  constexpr std::string_view kSocket = ".sock";
  std::string path = control_socket;
  if (path.ends_with(kSocket)) path.resize(path.size() - kSocket.size());
  return path + ".counters";
}

Result<CountersFile> CountersFile::create(const std::string& path, std::uint32_t mode,
                                          const Writer& writer, std::span<const Block> blocks) {
  if (is_in_use(path)) {
    return fail(Errc::already_exists, path + ": another ternd counts here; is it running?");
  }
  CountersFile file;
  std::uint32_t count = 0;
  for (const Block& block : blocks) count += static_cast<std::uint32_t>(block.texts.size());
  std::uint64_t end = aligned(sizeof(FileHeader) + std::uint64_t{count} * sizeof(Descriptor));
  for (const Block& block : blocks) {
    const std::uint64_t stride = aligned(block.texts.size() * sizeof(std::uint64_t));
    file.places_.push_back({end, stride, block.texts.size(), block.instances});
    end += stride * block.instances;
  }
  TERN_CHECK(end <= kMaxFileBytes && count <= kMaxCounters);

  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  file.fd_ = Fd(
      ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.fd_) return fail_errno(Errc::io_error, path, errno);
  const auto give_up = [&](const std::string& what, int error_number) {
    ::unlink(fresh.c_str());
    return fail_errno(Errc::io_error, what, error_number);
  };
  if (const int error = ::posix_fallocate(file.fd_.get(), 0, static_cast<off_t>(end)); error != 0) {
    return give_up(path + ": no room for the counters", error);
  }
  void* const mapped = ::mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd_.get(), 0);
  if (mapped == MAP_FAILED) return give_up(path, errno);
  file.bytes_ = static_cast<std::byte*>(mapped);
  file.size_ = end;

  FileHeader header{};
  header.magic = kMagic;
  header.header_bytes = sizeof(FileHeader);
  header.file_bytes = end;
  header.pid = writer.pid;
  header.started_ns = header.written_ns = writer.started_ns;
  header.counter_count = count;
  header.descriptor_bytes = sizeof(Descriptor);
  header.descriptors_offset = sizeof(FileHeader);
  copy_text(header.node_id, writer.node_id);
  copy_text(header.software, writer.software);
  std::memcpy(file.bytes_, &header, sizeof(header));
  std::byte* at = file.bytes_ + sizeof(FileHeader);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::size_t word = 0; word < blocks[i].texts.size(); ++word) {
      const CounterText& text = blocks[i].texts[word];
      Descriptor descriptor{};
      copy_text(descriptor.name, text.name);
      copy_text(descriptor.unit, text.unit);
      copy_text(descriptor.help, text.help);
      descriptor.offset = file.places_[i].offset + word * sizeof(std::uint64_t);
      descriptor.stride = file.places_[i].stride;
      descriptor.instances = blocks[i].instances;
      descriptor.kind = static_cast<std::uint8_t>(text.kind);
      std::memcpy(at, &descriptor, sizeof(descriptor));
      at += sizeof(descriptor);
    }
  }
  auto* const version =
      static_cast<std::uint32_t*>(static_cast<void*>(file.bytes_ + offsetof(FileHeader, version)));
  std::atomic_ref(*version).store(kVersion, std::memory_order_release);

  if (!lock_as_writer(file.fd_.get())) return give_up(path, errno);
  if (::fchmod(file.fd_.get(), mode) != 0) return give_up(path, errno);
  if (::rename(fresh.c_str(), path.c_str()) != 0) return give_up(path, errno);
  file.path_ = path;
  return file;
}

CountersFile::CountersFile(CountersFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::exchange(other.path_, {})),
      bytes_(std::exchange(other.bytes_, nullptr)),
      size_(other.size_),
      places_(std::move(other.places_)) {}

CountersFile& CountersFile::operator=(CountersFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::move(other.fd_);
  path_ = std::exchange(other.path_, {});
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_ = other.size_;
  places_ = std::move(other.places_);
  return *this;
}

CountersFile::~CountersFile() { close(); }

void CountersFile::close() noexcept {
  if (!path_.empty()) {
    struct stat there {};
    struct stat ours {};
    if (::lstat(path_.c_str(), &there) == 0 && ::fstat(fd_.get(), &ours) == 0 &&
        there.st_dev == ours.st_dev && there.st_ino == ours.st_ino) {
      ::unlink(path_.c_str());
    }
    path_.clear();
  }
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
  bytes_ = nullptr;
}

std::span<std::uint64_t> CountersFile::words(std::size_t block, std::uint32_t instance) const {
  const Place& place = places_.at(block);
  TERN_CHECK(instance < place.instances);
  return {static_cast<std::uint64_t*>(
              static_cast<void*>(bytes_ + place.offset + instance * place.stride)),
          place.words};
}

Status CountersFile::admit_group(const std::function<bool(gid_t)>& may) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return fail_errno(Errc::io_error, path_, errno);
  const mode_t mode = S_IRUSR | S_IWUSR | (may(info.st_gid) ? S_IRGRP : 0);
  if (::fchmod(fd_.get(), mode) != 0) return fail_errno(Errc::io_error, path_, errno);
  return {};
}

void CountersFile::touch(std::uint64_t now_ns) noexcept {
  if (bytes_ == nullptr) return;
  auto* const written =
      static_cast<std::uint64_t*>(static_cast<void*>(bytes_ + offsetof(FileHeader, written_ns)));
  std::atomic_ref(*written).store(now_ns, std::memory_order_relaxed);
}

}  // namespace tern::counters
