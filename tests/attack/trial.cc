#include "tests/attack/trial.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "pki/authority.h"
#include "tests/rounds.h"

namespace tern::attack {
namespace {

namespace fs = std::filesystem;

// Beyond what a daemon needs for the worst of them to end.
constexpr std::chrono::minutes kVictimPatience{3};

std::string number_text(auto number) { return std::to_string(number); }

int port_of(const std::string& address) {
  return std::atoi(address.substr(address.rfind(':') + 1).c_str());
}

}  // namespace

Burden burden_of(pid_t pid) {
  Burden burden;
  std::ifstream status("/proc/" + number_text(pid) + "/status");
  constexpr std::string_view kKey = "RssAnon:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kKey)) {
      burden.anonymous_bytes = std::atoll(line.c_str() + kKey.size()) * 1024;
    }
  }
  burden.descriptors = e2e::holdings_of(pid).descriptors;
  return burden;
}

// A file system in memory of some pages, all of which are taken.
class Trial::FullDisk {
 public:
  FullDisk() {
    if (::mount("tern-attack", path().c_str(), "tmpfs", 0, "mode=0777,size=256k") != 0) {
      problem_ = std::string("a small tmpfs cannot be mounted: ") + std::strerror(errno);
      return;
    }
    const Fd ballast(::open((path() + "/ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::vector<char> page(4096, 'x');
    while (::write(ballast.get(), page.data(), page.size()) > 0) {
    }
  }
  ~FullDisk() {
    if (problem_.empty()) ::umount2(path().c_str(), MNT_DETACH);
  }
  const std::string& path() const { return folder_.path(); }
  const std::string& problem() const { return problem_; }

 private:
  e2e::TemporaryFolder folder_;
  std::string problem_;
};

// What is started while it lives finds no SO_PASSRIGHTS.
class Trial::OlderKernel {
 public:
  // The daemon's user need not be able to search the way to the build.
  OlderKernel() {
    const std::string library = folder_.path() + "/older_kernel.so";
    fs::copy_file(TERN_OLDER_KERNEL, library);
    fs::permissions(folder_.path(), fs::perms::others_exec, fs::perm_options::add);
    ::setenv("LD_PRELOAD", library.c_str(), 1);
  }
  ~OlderKernel() { ::unsetenv("LD_PRELOAD"); }
  OlderKernel(const OlderKernel&) = delete;
  OlderKernel& operator=(const OlderKernel&) = delete;

 private:
  e2e::TemporaryFolder folder_;
};

// Whoever is started while it lives reads in /etc/subuid that one person has all of an attack's
// users.
class Trial::OwnedUsers {
 public:
  OwnedUsers() {
    const std::string file = folder_.path() + "/subuid";
    std::ofstream(file) << "nobody:" << kFirstOwnedUser << ":65536\n";
    // Mounts of this process and of those that it starts.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(file.c_str(), kPath, nullptr, MS_BIND, nullptr) != 0) {
      problem_ = std::string("another file cannot be put in the place of /etc/subuid: ") +
                 std::strerror(errno);
    }
  }
  ~OwnedUsers() {
    if (problem_.empty()) ::umount2(kPath, MNT_DETACH);
  }
  OwnedUsers(const OwnedUsers&) = delete;
  OwnedUsers& operator=(const OwnedUsers&) = delete;
  const std::string& problem() const { return problem_; }

 private:
  static constexpr const char* kPath = "/etc/subuid";

  e2e::TemporaryFolder folder_;
  std::string problem_;
};

Trial::Trial(Stage stage) {
  // As the product has them: a test would have others, to see a death soon.
  const std::string peer_timeout = std::to_string(5 * tests::kSlowdown) + "s";
  std::vector<std::string> options{"--peer-timeout",   peer_timeout, "--resume-timeout", "2s",
                                   "--heartbeat",      "1s",         "--op-timeout",     "10min",
                                   "--metrics-listen", "127.0.0.1:0"};
  const auto add = [&](std::initializer_list<std::string> more) {
    options.insert(options.end(), more);
  };
  if (stage == Stage::kept_state) add({"--state-ttl", "1h", "--max-state-bytes", "64MiB"});
  if (stage == Stage::key) {
    const std::string key = keys_.path() + "/cluster.key";
    if (!pki::make_cluster_key(key)) problem_ = "no cluster key could be made";
    for (const std::string& path : {keys_.path(), key}) {
      if (::chown(path.c_str(), kDaemonUser, kDaemonUser) != 0) problem_ = std::strerror(errno);
    }
    add({"--peer-security", "key", "--cluster-key-file", key});
  }
  if (stage == Stage::full_disk) {
    disk_ = std::make_unique<FullDisk>();
    problem_ = disk_->problem();
    add({"--flight-directory", disk_->path(), "--choice-directory", disk_->path(),
         "--state-directory", disk_->path()});
  }
  if (!problem_.empty()) return;
  std::optional<OlderKernel> older_kernel;
  if (stage == Stage::older_kernel) older_kernel.emplace();
  std::optional<OwnedUsers> owned_users;
  if (stage == Stage::many_users) {
    owned_users.emplace();
    problem_ = owned_users->problem();
    if (!problem_.empty()) return;
  }
  cluster_ = std::make_unique<e2e::Cluster>(2, options, std::vector<std::vector<std::string>>{},
                                            kDaemonUser);
  if (!cluster_->running()) {
    problem_ = "the daemons do not serve";
    return;
  }
  older_kernel.reset();
  owned_users.reset();
  cluster_->open_to_all();
  victim_ =
      e2e::Process(TERN_ATTACK,
                   {"victim", "--user", number_text(kVictimUser), "--socket", daemon(0).socket(),
                    "--socket", daemon(1).socket(), "--control", daemon(0).control_socket()},
                   daemon(0).folder() + "/victim.log");
}

Trial::~Trial() = default;

Target Trial::target() {
  Target target{daemon().socket(), daemon().control_socket(), daemon().port(), 0, ""};
  target.metrics_port = port_of(daemon().ask("status").value("metrics", ""));
  return target;
}

std::string Trial::victim_said() {
  std::ifstream log(daemon().folder() + "/victim.log");
  return {std::istreambuf_iterator<char>(log), {}};
}

nlohmann::json Trial::run(const Plan& plan) {
  const Target at = target();
  if (!victim_.write_line("start")) return nullptr;
  std::vector<std::string_view> attacks(static_cast<std::size_t>(plan.users), plan.attack);
  attacks.insert(attacks.end(), plan.beside.begin(), plan.beside.end());
  std::vector<e2e::Process> attackers;
  for (std::size_t user = 0; user < attacks.size(); ++user) {
    attackers.emplace_back(
        TERN_ATTACK,
        std::vector<std::string>{
            "run", std::string(attacks[user]), "--user",
            number_text(kFirstAttacker + static_cast<uid_t>(user)), "--socket", at.socket,
            "--control", at.control_socket, "--port", number_text(at.port), "--metrics",
            number_text(at.metrics_port), "--key", keys_.path() + "/cluster.key", "--seconds",
            number_text(plan.seconds), "--seed", number_text(plan.seed + user)},
        daemon().folder() + "/attack.log");
  }
  std::vector<std::uint64_t> blows;
  for (e2e::Process& attacker : attackers) {
    const auto line =
        attacker.read_line(std::chrono::seconds(static_cast<int>(plan.seconds)) + e2e::kPatience);
    blows.push_back(line ? std::strtoull(line->c_str(), nullptr, 10) : 0);
    attacker.kill();
  }
  if (!victim_.write_line("stop")) return nullptr;
  const auto line = victim_.read_line(kVictimPatience);
  if (!line) return nullptr;
  auto figures = nlohmann::json::parse(*line, nullptr, false);
  figures["blows"] = std::accumulate(blows.begin(), blows.end(), std::uint64_t{0});
  figures["least_blows"] = *std::min_element(blows.begin(), blows.end());
  return figures;
}

}  // namespace tern::attack
