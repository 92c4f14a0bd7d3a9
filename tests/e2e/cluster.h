#pragma once

// Real daemons on one machine: each has sockets of its own in a temporary folder and a port that
// the kernel chose. Their timeouts are short, so that a death is noticed while the test watches.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace tern::e2e {

class DaemonProcess {
 public:
  // Starts ternd; running() tells whether it serves. `options` go to its command line after the
  // fixture's own, so that they win. `user`: see Process.
  DaemonProcess(std::string folder, std::vector<std::string> options, uid_t user = 0);

  // Starts it again at the same addresses, after its process has ended.
  bool restart();
  bool running() const noexcept { return process_.pid() != 0 && port_ != 0; }
  Process& process() noexcept { return process_; }
  pid_t pid() const noexcept { return process_.pid(); }
  int port() const noexcept { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string socket() const { return folder_ + "/ternd.sock"; }
  std::string control_socket() const { return folder_ + "/control.sock"; }
  std::string log_path() const { return folder_ + "/log"; }
  std::string folder() const { return folder_; }
  // Whether its log says so, now or soon.
  bool logs(const std::string& text) const;

  // The answer of the control socket; null if there is none.
  nlohmann::json ask(std::string_view verb) const;
  std::int64_t counter(const std::string& name) const;
  Holdings holdings() const { return holdings_of(process_.pid()); }
  // What ternctl prints for people, with its exit code before it.
  std::string ternctl(const std::vector<std::string>& arguments, int* exit_code = nullptr) const;

 private:
  bool start();

  std::string folder_;
  std::vector<std::string> options_;
  uid_t user_;
  Process process_;
  int port_ = 0;
};

class Cluster {
 public:
  // Each daemon gets `options` and then its own row of `per_node`, if there is one. `user`: whose
  // they are, see Process.
  explicit Cluster(int nodes, const std::vector<std::string>& options = {},
                   const std::vector<std::vector<std::string>>& per_node = {}, uid_t user = 0);
  ~Cluster();  // prints the logs of a failed test

  DaemonProcess& operator[](std::size_t node) { return *daemons_[node]; }
  std::size_t size() const noexcept { return daemons_.size(); }
  bool running() const noexcept;
  const std::string& folder() const noexcept { return folder_.path(); }
  // Other users reach the sockets.
  void open_to_all() const;

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
};

}  // namespace tern::e2e
