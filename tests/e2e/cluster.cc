#include "tests/e2e/cluster.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "ctl/control_client.h"
#include "tests/ctl/run_program.h"

namespace tern::e2e {

DaemonProcess::DaemonProcess(std::string folder, std::vector<std::string> options, uid_t user)
    : folder_(std::move(folder)), options_(std::move(options)), user_(user) {
  std::filesystem::create_directory(folder_);
  if (user_ != 0 && ::chown(folder_.c_str(), user_, user_) != 0) return;
  start();
}

bool DaemonProcess::start() {
  std::vector<std::string> arguments{"--listen",         port_ == 0 ? "127.0.0.1:0" : address(),
                                     "--socket",         socket(),
                                     "--control-socket", control_socket(),
                                     "--peer-timeout",   "1s",
                                     "--resume-timeout", "500ms",
                                     "--heartbeat",      "200ms",
                                     "--unused-timeout", "1s",
                                     "--op-timeout",     "30s"};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  process_ = Process(TERN_TERND, arguments, log_path(), user_);
  nlohmann::json status;
  const bool serves = eventually([&] {
    if (process_.wait_exit(std::chrono::milliseconds(0))) return true;
    status = ask("status");
    return status.is_object();
  });
  if (!serves || !status.is_object()) return false;
  const std::string listen = status.value("listen", "");
  port_ = std::atoi(listen.substr(listen.rfind(':') + 1).c_str());
  return running();
}

bool DaemonProcess::restart() {
  process_.kill();
  return start();
}

nlohmann::json DaemonProcess::ask(std::string_view verb) const {
  auto answer =
      ctl::ask_daemon(control_socket(), verb, nlohmann::json::object(), std::chrono::seconds(20));
  return answer ? *answer : nlohmann::json();
}

std::int64_t DaemonProcess::counter(const std::string& name) const {
  const auto counters = ask("counters");
  const auto found = counters.is_object() ? counters.find(name) : counters.end();
  return found == counters.end() ? -1 : found->value("value", std::int64_t{-1});
}

bool DaemonProcess::logs(const std::string& text) const {
  constexpr std::size_t kAll = 1 << 30;
  constexpr std::chrono::seconds kSoon{20};
  return eventually([&] { return tail_of(log_path(), kAll).find(text) != std::string::npos; },
                    kSoon);
}

std::string DaemonProcess::ternctl(const std::vector<std::string>& arguments,
                                   int* exit_code) const {
  std::vector<std::string> all{"--socket", control_socket()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const auto result = ctl::run_program(TERN_TERNCTL, all);
  if (exit_code != nullptr) *exit_code = result.exit_code;
  return result.out + result.err;
}

Cluster::Cluster(int nodes, const std::vector<std::string>& options,
                 const std::vector<std::vector<std::string>>& per_node, uid_t user) {
  if (user != 0) {
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
  }
  for (std::size_t node = 0; node < static_cast<std::size_t>(nodes); ++node) {
    auto all = options;
    if (node < per_node.size()) all.insert(all.end(), per_node[node].begin(), per_node[node].end());
    daemons_.push_back(std::make_unique<DaemonProcess>(
        folder_.path() + "/node" + std::to_string(node), std::move(all), user));
  }
}

Cluster::~Cluster() {
  if (!::testing::Test::HasFailure()) return;
  for (std::size_t node = 0; node < daemons_.size() && node < 4; ++node) {
    std::fprintf(stderr, "---- log of node %zu ----\n%s\n", node,
                 tail_of(daemons_[node]->log_path()).c_str());
  }
}

void Cluster::open_to_all() const {
  namespace fs = std::filesystem;
  constexpr auto kSearch = fs::perms::others_read | fs::perms::others_exec;
  fs::permissions(folder_.path(), kSearch, fs::perm_options::add);
  for (const auto& daemon : daemons_) {
    fs::permissions(daemon->folder(), kSearch, fs::perm_options::add);
  }
}

bool Cluster::running() const noexcept {
  for (const auto& daemon : daemons_) {
    if (!daemon->running()) return false;
  }
  return true;
}

}  // namespace tern::e2e
