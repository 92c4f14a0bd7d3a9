// ternd: the daemon of one node.

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/check_settings.h"
#include "daemon/config/command_line.h"
#include "daemon/config/descriptor_budget.h"
#include "daemon/daemon.h"
#include "daemon/operator/operator_view.h"
#include "daemon/operator/version.h"
#include "daemon/service/journal_sink.h"
#include "daemon/service/late_log.h"
#include "daemon/service/recent_log.h"

namespace {

tern::daemon::Daemon* g_daemon = nullptr;

void on_signal(int number) {
  if (g_daemon == nullptr) return;
  if (number == SIGHUP) {
    g_daemon->request_reload();
  } else {
    g_daemon->request_stop();
  }
}

tern::Result<tern::daemon::Config> read_config(const std::vector<std::string>& arguments) {
  auto line = tern::daemon::parse_command_line(arguments, tern::daemon::kVersion);
  if (!line) return tl::unexpected(line.error());
  return std::move(line->config);
}

std::shared_ptr<tern::daemon::LateLog> start_log(const std::string& level) {
  const bool to_journal = tern::daemon::stderr_is_journal();
  auto log = std::make_shared<tern::daemon::LateLog>(
      to_journal ? tern::daemon::make_journal_sink()
                 : std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  spdlog::set_default_logger(tern::daemon::make_logger(log));
  if (!to_journal) spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  spdlog::default_logger()->sinks().push_back(tern::daemon::recent_log_sink());
  spdlog::set_level(spdlog::level::from_str(level));
  return log;
}

// Records and logs of choices name jobs and tensors, which are not for everybody. The sockets have
// modes of their own.
void close_files_to_others() { ::umask(::umask(S_IRWXO) | S_IRWXO); }

// A client takes some descriptors, and the usual limit of 1024 is for programs that select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Until a signal ends it.
tern::Status serve(const tern::daemon::Config& config, const std::vector<std::string>& arguments) {
  auto daemon =
      tern::daemon::Daemon::create(config, [arguments] { return read_config(arguments); });
  if (!daemon) return tl::unexpected(std::move(daemon.error()));
  g_daemon = daemon->get();
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  (*daemon)->run();
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGTERM, &ignore, nullptr);
  sigaction(SIGHUP, &ignore, nullptr);
  g_daemon = nullptr;
  daemon->reset();
  spdlog::info("stopped");
  return {};
}

int run(const std::vector<std::string>& arguments) {
  auto line = tern::daemon::parse_command_line(arguments, tern::daemon::kVersion);
  if (!line) {
    std::fprintf(stderr, "%s\n", line.error().text.c_str());
    return 2;
  }
  if (line->print) {
    std::fputs(line->print->c_str(), stdout);
    return 0;
  }
  if (line->print_counters) {
    std::fputs(tern::daemon::counters_markdown().c_str(), stdout);
    return 0;
  }
  // A mistake stays one, however often the daemon is started: its status says so to the supervisor.
  const auto checked = tern::daemon::check_settings(line->config);
  if (!checked && checked.error().code != tern::Errc::unreachable) {
    std::fprintf(stderr, "ternd: %s\n", checked.error().text.c_str());
    return 2;
  }
  close_files_to_others();
  raise_descriptor_limit();
  tern::daemon::make_room_for_descriptors(
      tern::daemon::descriptor_budget(line->config, tern::daemon::descriptor_limit()));
  const auto log = start_log(line->config.log_level);  // with a thread: that table is large by now
  std::optional<std::string> problem;
  try {
    const tern::Status served = serve(line->config, arguments);
    if (!served) problem = served.error().text;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const int status = problem ? 1 : 0;
  // Where nobody takes the log, exit() would wait for the thread that writes to stderr: it flushes
  // that, whose lock the thread has.
  if (!log->settle()) std::_Exit(status);
  if (problem) std::fprintf(stderr, "ternd: %s\n", problem->c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ternd: %s\n", error.what());
    return 1;
  }
}
