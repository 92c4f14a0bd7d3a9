#include "tests/attack/hanging_file.h"

#include <linux/fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace tern::attack {
namespace {

constexpr const char* kPlace = "/mnt";
constexpr std::uint64_t kFileNode = 2;

// Answers what it takes to open a file, and no more.
class Server {
 public:
  explicit Server(int device) : device_(device) {}

  [[noreturn]] void serve() {
    std::vector<char> bytes(1 << 20);
    while (true) {
      const ssize_t count = ::read(device_, bytes.data(), bytes.size());
      if (count < static_cast<ssize_t>(sizeof request_)) ::_exit(0);
      std::memcpy(&request_, bytes.data(), sizeof request_);
      answer();
    }
  }

 private:
  template <typename Body>
  void reply(const Body& body) {
    fuse_out_header header{};
    header.len = sizeof header + sizeof body;
    header.unique = request_.unique;
    std::vector<char> bytes(header.len);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
    static_cast<void>(!::write(device_, bytes.data(), bytes.size()));
  }
  void refuse() {
    fuse_out_header header{};
    header.len = sizeof header;
    header.error = -ENOSYS;
    header.unique = request_.unique;
    static_cast<void>(!::write(device_, &header, sizeof header));
  }
  static fuse_attr attributes(std::uint64_t node) {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.mode = node == kFileNode ? S_IFREG | 0666u : S_IFDIR | 0777u;
    attributes.nlink = 1;
    return attributes;
  }

  void answer() {
    switch (request_.opcode) {
      case FUSE_INIT: {
        fuse_init_out body{};
        body.major = FUSE_KERNEL_VERSION;
        body.minor = 31;
        body.max_write = 4096;
        return reply(body);
      }
      case FUSE_LOOKUP: {
        fuse_entry_out body{};
        body.nodeid = kFileNode;
        body.attr = attributes(kFileNode);
        return reply(body);
      }
      case FUSE_GETATTR: {
        fuse_attr_out body{};
        body.attr = attributes(request_.nodeid);
        return reply(body);
      }
      case FUSE_OPEN:
        return reply(fuse_open_out{});
      case FUSE_FLUSH:
      case FUSE_RELEASE:
        return;
      default:
        refuse();
    }
  }

  int device_;
  fuse_in_header request_{};
};

}  // namespace

HangingFile::HangingFile() {
  Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options =
      "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (!device || ::mount("fuse", kPlace, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return;
  }
  itimerval left{};
  ::getitimer(ITIMER_REAL, &left);
  if (::fork() == 0) {
    // Timers are not inherited. This one has no handler: it kills.
    ::signal(SIGALRM, SIG_DFL);
    ::setitimer(ITIMER_REAL, &left, nullptr);
    Server(device.get()).serve();
  }
  device.reset();
  file_.reset(::open((std::string(kPlace) + "/file").c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace tern::attack
