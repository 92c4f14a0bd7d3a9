#include "ctl/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tern::ctl {
namespace {

constexpr mode_t kMode = 0600;  // names of tensors and jobs are nobody else's business

struct Found {
  bool is_device = false;  // as /dev/null is: written as it is, and not replaced
  std::string trouble;
};

// A pipe, a terminal or a link that another user has laid there would hand him what is written.
Found look_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};  // it is new
  const bool is_own = info.st_uid == ::geteuid();
  const bool is_device = S_ISCHR(info.st_mode);
  if (!is_device && !S_ISREG(info.st_mode)) return {false, "it is neither a file nor a device"};
  if (!is_own && !(is_device && info.st_uid == 0)) {
    return {false, "it belongs to uid " + std::to_string(info.st_uid)};
  }
  return {is_device, ""};
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path) {
  OutputFile output;
  output.path_ = path;
  const Found found = look_at(path);
  if (path != "-" && !found.trouble.empty()) {
    return fail(Errc::permission_denied,
                path + " is not overwritten: " + found.trouble +
                    "; name a new file, or write to the standard output with -");
  }
  int fd = -1;
  if (path == "-") {
    fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  } else if (found.is_device) {
    fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
  } else {
    output.partial_ = path + ".partial";
    ::unlink(output.partial_.c_str());
    // O_EXCL: nobody else has made it, and it is no link.
    fd = ::open(output.partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (fd < 0) output.partial_.clear();
  }
  if (fd < 0) return fail_errno(Errc::io_error, path + " cannot be written", errno);
  output.file_.reset(::fdopen(fd, "w"));
  if (!output.file_) return fail_errno(Errc::io_error, path, errno);
  return output;
}

OutputFile::~OutputFile() {
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (error_ != 0) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) error_ = errno;
}

Status OutputFile::finish() {
  if (error_ == 0 && std::fflush(file_.get()) != 0) error_ = errno;
  // A full disk of another machine shows only here.
  if (std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0 && !partial_.empty() && ::rename(partial_.c_str(), path_.c_str()) != 0) {
    error_ = errno;
  }
  if (error_ != 0) return fail_errno(Errc::io_error, path_ + " could not be written", error_);
  partial_.clear();
  return {};
}

}  // namespace tern::ctl
