#include "daemon/operator/host_report.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

namespace tern::daemon {

nlohmann::json report_host(const std::string& flight_directory) {
  rlimit memlock{};
  const bool known = ::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0;
  const bool endless = memlock.rlim_cur == RLIM_INFINITY;
  struct statvfs disk {};
  const bool mounted = ::statvfs(flight_directory.c_str(), &disk) == 0;
  return {{"memlock_bytes", !known    ? 0
                            : endless ? std::numeric_limits<std::uint64_t>::max()
                                      : std::uint64_t{memlock.rlim_cur}},
          {"flight_directory", flight_directory},
          {"flight_writable", ::access(flight_directory.c_str(), W_OK | X_OK) == 0},
          {"flight_free_bytes", mounted ? std::uint64_t{disk.f_bavail} * disk.f_frsize : 0}};
}

std::uint64_t rss_bytes() {
  unsigned long long size = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<unsigned long long>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tern::daemon
