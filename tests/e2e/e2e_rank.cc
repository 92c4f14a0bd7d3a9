// A rank that does what it is told. One command a line on stdin, one answer a line on stdout: "ok
// <fields>" or "error <tern_status> <sentence>". A command is a word and key=value pairs:
//
//   connect socket= job= arena=          mint                      disconnect
//   join group= id= rank= size= [timeout= op_timeout= verify= seed=]    leave group=
//   declare group= name= count= [dtype= role= recipe= exempt=]     release name=
//   submit op= group= [kind= tensor= count= dtype= reduction= data= draw= root= place= prescale=
//   recipe=] wait op= [ms= tolerance= mean= scribble=]     cancel op=       stats name= stream
//   group= ops= [count= large= window= tensors= recipe=]    until an op fails, or ops= are done
//   kinds group= rounds=                 operations of every kind until one fails, or rounds
//   save group= name= file=              load group= name= file=            codec state
//   fork                                 a child that lives on with every descriptor until stdin
//   ends
//
// `place` is out, in (in place) or heap (memory outside the arena). An answer to wait has the
// result's checksum and how many elements differ from what the reduction must give; with `mean`
// also the errors, relative to it, of the result and of the mean of all results of that name;
// with `scribble` the rank writes over its output until the op has ended.

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "tests/e2e/rank_session.h"

namespace {

// Stays until the test closes the pipe that parent and child share.
[[noreturn]] void linger() {
  pollfd entry{STDIN_FILENO, 0, 0};
  while (::poll(&entry, 1, -1) < 0 || (entry.revents & POLLHUP) == 0) {
  }
  ::_exit(0);
}

bool become(uid_t user) {
  const pid_t parent = ::getppid();
  if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) return false;
  // The change takes both away; a process that was always his has them.
  ::prctl(PR_SET_DUMPABLE, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

std::string answer(tern::e2e::RankSession& session, const tern::e2e::Command& command) {
  if (command.verb == "fork") {
    const pid_t child = ::fork();
    if (child == 0) linger();
    return "ok child=" + std::to_string(child);
  }
  return session.run(command);
}

}  // namespace

// With --user N the process is that user's from here on: he may not be able to search the way to
// the program.
int main(int argc, char** argv) {
  if (argc == 3 && !become(static_cast<uid_t>(std::strtoul(argv[2], nullptr, 10)))) return 1;
  tern::e2e::RankSession session;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(session, tern::e2e::parse_command(line)) << std::endl;
  }
  return 0;
}
