#include "ctl/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/printable.h"
#include "ctl/address_findings.h"
#include "ctl/fields.h"
#include "ctl/gpu_findings.h"
#include "ctl/human.h"
#include "ctl/rdma_findings.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// An arena of the default size, and what lanes hold.
constexpr std::uint64_t kMemlockEnough = std::uint64_t{4} << 30;
// Of flight records, which have at most some hundred kilobytes each.
constexpr std::uint64_t kFreeEnough = std::uint64_t{100} << 20;

std::uint64_t number_field(const json& object, std::string_view key) {
  const auto value = object.is_object() ? object.find(key) : object.end();
  return value != object.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

bool flag_field(const json& object, std::string_view key) {
  const auto value = object.is_object() ? object.find(key) : object.end();
  return value != object.end() && value->is_boolean() && value->get<bool>();
}

Finding examine_memlock(const json& host) {
  const std::uint64_t limit = number_field(host, "memlock_bytes");
  if (limit >= kMemlockEnough) return {Grade::good, "memory lock", "enough may be locked", ""};
  return {Grade::advice, "memory lock",
          fmt::format("the daemon may lock {} at most", human_bytes(static_cast<double>(limit))),
          "RDMA registers memory, which locks it: LimitMEMLOCK=infinity in the unit, or `ulimit -l "
          "unlimited` before starting it by hand"};
}

Finding examine_huge_pages(const Machine& machine) {
  const auto begin = machine.huge_pages.find('[');
  const auto end = machine.huge_pages.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return {Grade::advice, "huge pages", "the kernel does not say whether it uses them",
            "a kernel with CONFIG_TRANSPARENT_HUGEPAGE saves time on large arenas"};
  }
  const std::string mode = machine.huge_pages.substr(begin + 1, end - begin - 1);
  if (mode == "never" || mode == "deny") {
    return {Grade::advice, "huge pages", "off for shared memory",
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
  }
  return {Grade::good, "huge pages", "shared memory: " + mode, ""};
}

constexpr const char* kNoVectorsRemedy =
    "prefer recipe raw: encoding may take longer than it saves";

bool has_flag(const Machine& machine, const std::string& flag) {
  return machine.cpu_flags.find(" " + flag + " ") != std::string::npos;
}

Finding examine_cpu(const Machine& machine, const json& status) {
  const std::string target = text_field(status, "kernel_target");
  const bool has_avx2 = has_flag(machine, "avx2");
  const bool uses_vectors = target.starts_with("avx");
  if (uses_vectors || (!has_avx2 && target != "scalar")) {
    return {Grade::good, "processor", "codecs use " + target, ""};
  }
  if (has_avx2) {
    return {Grade::advice, "processor", "has AVX2, but codecs use " + target,
            "set kernel_target = \"auto\" and restart the daemon"};
  }
  return {Grade::advice, "processor", "has no vectors that codecs could use", kNoVectorsRemedy};
}

// Before a daemon has chosen its kernels.
Finding examine_cpu_alone(const Machine& machine) {
  for (const auto& [flag, name] : {std::pair("avx512bw", "AVX-512"), std::pair("avx2", "AVX2"),
                                   std::pair("sse4_1", "SSE4.1")}) {
    if (has_flag(machine, flag)) {
      return {Grade::good, "processor", std::string("has ") + name + " for codecs", ""};
    }
  }
#if defined(__x86_64__)
  return {Grade::advice, "processor", "has no vectors that codecs could use", kNoVectorsRemedy};
#else
  return {Grade::good, "processor", "the daemon will say what its codecs use", ""};
#endif
}

// Of this shell, from which a daemon may be started by hand.
Finding examine_own_memlock(const Machine& machine) {
  if (machine.memlock_bytes >= kMemlockEnough) {
    return {Grade::good, "memory lock", "enough may be locked", ""};
  }
  return {Grade::advice, "memory lock",
          fmt::format("a daemon started here may lock {} at most",
                      human_bytes(static_cast<double>(machine.memlock_bytes))),
          "the unit has a limit of its own, systemctl start ternd; by hand `ulimit -l unlimited` "
          "before it"};
}

Finding examine_records(const json& host) {
  const std::string directory = text_field(host, "flight_directory");
  if (!flag_field(host, "flight_writable")) {
    return {Grade::fault, "flight records", "the daemon cannot write to " + directory,
            "give that directory to its user; under systemd add ReadWritePaths= in a drop-in"};
  }
  const std::uint64_t free = number_field(host, "flight_free_bytes");
  if (free < kFreeEnough) {
    return {Grade::advice, "flight records",
            fmt::format("{} has {} left", directory, human_bytes(static_cast<double>(free))),
            "make room, or set flight_directory to another disk"};
  }
  return {Grade::good, "flight records", "in " + directory, ""};
}

Finding examine_lanes(const json& status) {
  const auto silent = status.is_object() ? status.find("silent_lanes") : status.end();
  if (silent != status.end() && silent->is_array() && !silent->empty()) {
    return {Grade::fault, "lanes", "no answer from lanes " + silent->dump(),
            "systemctl restart ternd, and send the log with a report"};
  }
  return {Grade::good, "lanes", "all answer", ""};
}

Finding examine_peers(const json& peers, const json& counters) {
  std::size_t broken = 0;
  for (const json& peer : peers.is_array() ? peers : json::array()) {
    const std::string state = text_field(peer, "state");
    broken += state == "resuming" || state == "closed" ? 1 : 0;
  }
  if (broken > 0) {
    return {Grade::fault, "peers", fmt::format("{} links are broken", broken),
            "`ternctl peers` names them; is the daemon there up, and its port open?"};
  }
  const auto row = counters.is_object() ? counters.find("hellos_refused") : counters.end();
  if (row != counters.end() && number_field(*row, "value") > 0) {
    return {Grade::advice, "peers",
            fmt::format("{} connections were refused at their hello", number_field(*row, "value")),
            "the log says why: another version of the wire protocol needs an upgrade, a stranger a "
            "firewall"};
  }
  return {Grade::good, "peers", "no link is broken, none was refused", ""};
}

// Peers say these over the control link, which leads to the coordinators of groups.
Finding examine_versions(const json& status, const json& peers) {
  const std::string own = text_field(status, "version");
  std::string others;
  for (const json& peer : peers.is_array() ? peers : json::array()) {
    const std::string theirs = text_field(peer, "software");
    if (theirs == "-" || theirs == own) continue;
    others += fmt::format("{}{} runs {}", others.empty() ? "" : ", ", text_field(peer, "address"),
                          theirs);
  }
  if (others.empty()) return {Grade::good, "versions", "no peer runs another", ""};
  return {Grade::advice, "versions", fmt::format("{}, this node {}", others, own),
          "they understand each other as long as the wire protocol is the same; upgrade all nodes"};
}

Finding examine_skew(const json& peers) {
  constexpr double kNoticeableMs = 100;  // log lines of two nodes come in the wrong order
  std::string others;
  for (const json& peer : peers.is_array() ? peers : json::array()) {
    const auto skew = peer.is_object() ? peer.find("calendar_skew_ms") : peer.end();
    if (!peer.is_object() || skew == peer.end() || !skew->is_number()) continue;
    const double ms = skew->get<double>();
    const double error = peer.value("calendar_error_ms", json(0.0)).is_number()
                             ? peer.value("calendar_error_ms", json(0.0)).get<double>()
                             : 0.0;
    if (std::abs(ms) - error < kNoticeableMs) continue;
    others += fmt::format("{}that of {} is {} {}", others.empty() ? "" : ", ",
                          text_field(peer, "address"), human_seconds(std::abs(ms) / 1e3),
                          ms > 0 ? "ahead" : "behind");
  }
  if (others.empty()) return {Grade::good, "clocks of peers", "none is known to differ", ""};
  return {Grade::advice, "clocks of peers", others,
          "logs of these nodes cannot be compared: chrony on all, with one source"};
}

Finding examine_security(const Machine& machine, const json& status) {
  const std::string mode = text_field(status, "peer_security");
  if (mode == "plaintext") {
    return {Grade::advice, "security", "what nodes send each other is neither encrypted nor proved",
            "peer_security = \"tls\" or \"key\", docs/security.md: five commands"};
  }
  const auto found = status.is_object() ? status.find("certificates") : status.end();
  const json certificates = found != status.end() ? *found : json::array();
  // What ends others' trust now comes before what will.
  const auto ends_before = [&](std::int64_t unix_s) -> const json* {
    for (const json& one : certificates) {
      const auto end = one.find("not_after_s");
      const bool is_known = end != one.end() && end->is_number_integer();
      if (is_known && end->get<std::int64_t>() < unix_s) return &one;
    }
    return nullptr;
  };
  const auto says_its_end = [](Grade grade, const json& one) -> Finding {
    return {grade, "security",
            fmt::format("the certificate of {} ends on {}", text_field(one, "subject"),
                        text_field(one, "expires")),
            "`ternctl pki issue` makes a new one, `systemctl reload ternd` reads it"};
  };
  if (const json* one = ends_before(machine.unix_s)) return says_its_end(Grade::fault, *one);
  const std::string host = host_of(text_field(status, "advertise"));
  for (const json& one : certificates) {
    if (text_field(one, "kind") != "node" || is_for(one, host)) continue;
    return {
        Grade::fault, "security",
        fmt::format("the certificate of {} is not for {}, which other nodes dial: they refuse it",
                    text_field(one, "subject"), printable(host)),
        "`ternctl pki issue` one with that name, or correct `advertise`"};
  }
  constexpr std::int64_t kDay = 86'400;
  if (const json* one = ends_before(machine.unix_s + 30 * kDay)) {
    return says_its_end(Grade::advice, *one);
  }
  return {Grade::good, "security", "between nodes: " + mode, ""};
}

Finding examine_clock(const Machine& machine) {
  if (machine.clock_synchronized) return {Grade::good, "clock", "synchronized", ""};
  return {Grade::advice, "clock", "not synchronized",
          "logs of several nodes cannot be compared: install chrony or systemd-timesyncd"};
}

constexpr std::string_view grade_name(Grade grade) {
  switch (grade) {
    case Grade::good:
      return "good";
    case Grade::advice:
      return "advice";
    case Grade::fault:
      return "fault";
  }
  return "fault";
}

}  // namespace

std::vector<Finding> examine(const Machine& machine, const Answers& answers) {
  const auto& [status, host, peers, counters, clients] = answers;
  std::vector<Finding> findings{examine_lanes(status)};
  if (!peers.is_null()) findings.push_back(examine_peers(peers, counters));
  findings.push_back(examine_port(machine, status));
  findings.push_back(examine_network(machine));
  if (!host.is_null()) findings.push_back(examine_memlock(host));
  findings.push_back(examine_huge_pages(machine));
  findings.push_back(examine_cpu(machine, status));
  if (!host.is_null()) findings.push_back(examine_records(host));
  for (Finding& finding : examine_rdma(machine, status, peers)) {
    findings.push_back(std::move(finding));
  }
  for (Finding& finding : examine_gpu(machine)) findings.push_back(std::move(finding));
  for (Finding& finding : examine_devices(clients)) findings.push_back(std::move(finding));
  if (!peers.is_null()) findings.push_back(examine_versions(status, peers));
  findings.push_back(examine_clock(machine));
  if (!peers.is_null()) findings.push_back(examine_skew(peers));
  findings.push_back(examine_security(machine, status));
  if (host.is_null() || peers.is_null() || counters.is_null()) {
    findings.push_back({Grade::advice, "rights",
                        "not examined: peers, their versions and clocks, memory lock, flight "
                        "records, which are shown to observers alone",
                        "use sudo, or have the daemon's setting observers name you"});
  }
  return findings;
}

std::vector<Finding> examine_machine(const Machine& machine) {
  std::vector<Finding> findings{examine_own_port(machine)};
  for (Finding& finding : examine_interfaces(machine)) findings.push_back(std::move(finding));
  findings.push_back(examine_own_memlock(machine));
  findings.push_back(examine_huge_pages(machine));
  findings.push_back(examine_cpu_alone(machine));
  for (Finding& finding : examine_rdma(machine, nullptr, nullptr)) {
    findings.push_back(std::move(finding));
  }
  for (Finding& finding : examine_gpu(machine)) findings.push_back(std::move(finding));
  findings.push_back(examine_clock(machine));
  return findings;
}

std::string render_findings(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<7} {}: {}\n", grade_name(finding.grade), finding.subject, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("        -> {}\n", finding.remedy);
  }
  return text;
}

json findings_json(const std::vector<Finding>& findings) {
  json rows = json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"grade", grade_name(finding.grade)},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"remedy", finding.remedy}});
  }
  return rows;
}

}  // namespace tern::ctl
