// tern-attack list                         the attacks, with the promise that each tries to break
// tern-attack run NAME --user N --socket PATH --control PATH --port N [--metrics N] [--key FILE]
//                      [--seconds N] [--seed N]
// tern-attack victim --user N --socket PATH --socket PATH --control PATH
//
// `run` is that user before it does anything, ends when its time is up, and prints how many blows
// it has struck. `victim` runs a job: "start" on its stdin begins, "stop" ends and prints what was.

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "tests/attack/attack.h"
#include "tests/attack/victim.h"

namespace tern::attack {
namespace {

struct Options {
  Target target;
  std::vector<std::string> sockets;
  uid_t user = 0;
  double seconds = 2;
  std::uint64_t seed = 1;
};

bool read_options(std::span<char* const> words, Options& options) {
  if (words.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string name = words[i], value = words[i + 1];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--socket") {
      options.sockets.push_back(value);
      options.target.socket = value;
    } else if (name == "--control") {
      options.target.control_socket = value;
    } else if (name == "--port") {
      options.target.port = static_cast<int>(number);
    } else if (name == "--metrics") {
      options.target.metrics_port = static_cast<int>(number);
    } else if (name == "--key") {
      std::ifstream file(value);  // which only its owner may read, before it is another's turn
      std::getline(file, options.target.key);
    } else if (name == "--user") {
      options.user = static_cast<uid_t>(number);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value.c_str(), nullptr);
    } else if (name == "--seed") {
      options.seed = number;
    } else {
      return false;
    }
  }
  return true;
}

bool become(uid_t user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0) {
    return false;
  }
  // The change takes both away; a process that was always his has them.
  ::prctl(PR_SET_DUMPABLE, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return true;
}

Assault* current = nullptr;

void set_alarm(double seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(seconds);
  timer.it_value.tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1) * 1e6);
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

// Wherever the attack is, it is over. But where other attackers have kept it out until now, it goes
// on until it has struck once; who waits for the report ends one that never does.
void report(int) {
  if (current->blows() == 0) return set_alarm(0.1);
  std::array<char, 32> text;
  auto* const end = std::to_chars(text.data(), text.data() + 30, current->blows()).ptr;
  *end = '\n';
  static_cast<void>(
      !::write(STDOUT_FILENO, text.data(), static_cast<std::size_t>(end + 1 - text.data())));
  ::_exit(0);
}

// How much of a machine's own it takes to run it, for who runs them by name.
const char* text_of(const Attack& attack) {
  if (attack.standing == Standing::alone) return "alone";
  return attack.stage == Stage::plain ? "plain" : "staged";
}

int list() {
  for (const Attack& one : all_attacks()) {
    std::cout << one.name << '\t' << text_of(one) << '\t' << one.promise << '\n';
  }
  return 0;
}

int run(const Attack& attack, const Options& options) {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  if (attack.stage != Stage::many_users && !become(options.user)) return 1;
  ::signal(SIGPIPE, SIG_IGN);
  Assault assault(options.target, options.seed);
  current = &assault;
  ::signal(SIGALRM, report);
  set_alarm(options.seconds);
  // Not let in yet.
  do {
    attack.strike(assault);
  } while (assault.blows() == 0);
  // Thrown out for good.
  while (true) ::pause();
}

int be_victim(const Options& options) {
  if (options.sockets.size() != 2 || !become(options.user)) return 1;
  Victim victim({options.sockets[0], options.sockets[1]}, options.target.control_socket);
  if (!victim.problem().empty()) {
    std::cerr << victim.problem() << '\n';
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "start") victim.start();
    if (line == "stop") std::cout << victim.stop() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tern::attack

int main(int argc, char** argv) {
  using namespace tern::attack;
  const std::span<char* const> words(argv, static_cast<std::size_t>(argc));
  const std::string verb = argc > 1 ? argv[1] : "";
  Options options;
  if (verb == "list") return list();
  if (verb == "victim" && read_options(words.subspan(2), options)) return be_victim(options);
  if (verb == "run" && argc > 2 && read_options(words.subspan(3), options)) {
    if (const Attack* attack = find_attack(argv[2])) return run(*attack, options);
    std::cerr << "tern-attack: there is no attack " << argv[2] << ": see tern-attack list\n";
    return 2;
  }
  std::cerr << "usage: tern-attack list | run NAME ... | victim ...\n";
  return 2;
}
