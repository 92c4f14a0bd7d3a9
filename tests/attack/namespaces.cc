// Many users in one: sub-uids, processes in namespaces of their own, file systems in user space.

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/attack/attack.h"
#include "tests/attack/hanging_file.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"
#include "tests/lingering_socket.h"

namespace tern::attack {
namespace {

bool become(uid_t user) {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
         ::setresuid(user, user, user) == 0;
}

// As each of eight users: all the clients and control connections that one may have.
void many_uids(Assault& assault) {
  constexpr int kUsers = 8;
  for (int user = 0; user < kUsers; ++user) {
    if (::fork() != 0) continue;
    const uid_t uid = kFirstOwnedUser + static_cast<uid_t>(user);
    if (!become(uid)) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user takes it away
    Held<std::unique_ptr<HostileClient>> clients(64);
    Held<Fd> controls(8);
    while (true) {
      auto& client = clients.hold(std::make_unique<HostileClient>(assault.target.socket));
      enter(*client);
      controls.hold(connect_local(assault.target.control_socket));
      if (clients.all().size() == 64) ::pause();
    }
  }
  // Stays root's: with the rights of another user its end would not end them.
  assault.goes_on();
}

bool write_text(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// This process is root of a user namespace of its own.
bool enter_user_namespace(int further = 0) {
  const uid_t own = ::getuid();
  if (::unshare(CLONE_NEWUSER | further) != 0) return false;
  return write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", "0 " + std::to_string(own) + " 1") &&
         write_text("/proc/self/gid_map", "0 " + std::to_string(own) + " 1");
}

// Processes whose number the daemon cannot know.
void pid_namespace(Assault& assault) {
  if (!enter_user_namespace()) return;
  while (assault.goes_on()) {
    const auto child = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
      HostileClient client(assault.target.socket);
      if (enter(client)) declare(client, {join_alone(client), 100, "tensor", ""});
      ::_exit(0);
    }
    if (child > 0) ::waitpid(child, nullptr, 0);
  }
}

// Descriptors of a file whose close never returns.
void hanging_files(Assault& assault) {
  if (!enter_user_namespace(CLONE_NEWNS)) return;
  const HangingFile file;
  if (file.fd() < 0) return;
  const auto goodbye = shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::goodbye, 9);
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (assault.below(2) == 0 && !enter(client)) continue;
    tests::send_descriptor(client.socket().fd(), file.fd(), shm::packet_bytes(goodbye));
  }
}

constexpr Attack kAttacks[] = {
    {"many_uids", "one person with many uids leaves room for others", many_uids, Stage::many_users},
    {"pid_namespace", "clients whose number is unknown are clients like others", pid_namespace},
    {"hanging_files", "closing a file that a user sent stops nobody", hanging_files},
    {"hanging_files_on_an_older_kernel", "closing a file that a user sent stops nobody else",
     hanging_files, Stage::older_kernel},
};

}  // namespace

std::span<const Attack> namespace_attacks() { return kAttacks; }

}  // namespace tern::attack
