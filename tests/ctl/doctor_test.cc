#include "ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ctl/gpu_findings.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A node where all is good; each test spoils one thing.
struct Node {
  Machine machine{.cpu_flags = " sse2 avx2 ",
                  .huge_pages = "always within_size [advise] never deny force",
                  .interfaces = {{"lo", "127.0.0.1", 0}, {"eth0", "10.0.0.5", 25000}},
                  .clock_synchronized = true,
                  .unix_s = 1'800'000'000,
                  .memlock_bytes = std::numeric_limits<std::uint64_t>::max(),
                  .advertised = {"10.0.0.5"}};
  json status{{"listen", "0.0.0.0:7700"},
              {"advertise", "10.0.0.5:7700"},
              {"kernel_target", "avx2"},
              {"silent_lanes", json::array()}};
  json host{{"memlock_bytes", std::numeric_limits<std::uint64_t>::max()},
            {"flight_directory", "/var/lib/tern"},
            {"flight_writable", true},
            {"flight_free_bytes", std::uint64_t{1} << 40}};
  json peers = json::array({{{"state", "up"}}});
  json counters{{"hellos_refused", {{"value", 0}}}};
  json clients = json::array({{{"id", 7}, {"pid", 4242}, {"job", "resnet"}}});

  std::vector<Finding> findings() const {
    return examine(machine, {status, host, peers, counters, clients});
  }
  Finding about(const std::string& subject) const { return find(findings(), subject); }
  // Of what is said while no daemon answers.
  Finding alone_about(const std::string& subject) const {
    return find(examine_machine(machine), subject);
  }
  static Finding find(const std::vector<Finding>& findings, const std::string& subject) {
    for (const Finding& finding : findings) {
      if (finding.subject == subject) return finding;
    }
    return {Grade::fault, "", "nobody looked", ""};
  }
};

void expect(const Finding& finding, Grade grade, const char* text, const char* remedy) {
  EXPECT_EQ(finding.grade, grade);
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(Doctor, FindsAGoodNodeGoodAndAdvisesNothing) {
  for (const Finding& finding : Node().findings()) {
    EXPECT_EQ(finding.grade, Grade::good) << finding.subject << ": " << finding.text;
    EXPECT_EQ(finding.remedy, "") << finding.subject;
  }
}

TEST(Doctor, SaysHowToLockMoreMemory) {
  Node node;
  node.host["memlock_bytes"] = 8u << 20;
  expect(node.about("memory lock"), Grade::advice, "8 MiB", "LimitMEMLOCK=infinity");
}

TEST(Doctor, WarnsOfPlaintext) {
  Node node;
  node.status["peer_security"] = "plaintext";
  expect(node.about("security"), Grade::advice, "neither encrypted", "peer_security");
}

TEST(Doctor, WarnsOfCertificatesThatEnd) {
  Node node;
  node.status["peer_security"] = "tls";
  const auto ends = [&](std::int64_t days) {
    node.status["certificates"] =
        json::array({{{"subject", "node1"},
                      {"expires", "some day"},
                      {"not_after_s", node.machine.unix_s + days * 86'400}}});
    return node.about("security");
  };
  expect(ends(31), Grade::good, "tls", "");
  expect(ends(29), Grade::advice, "node1 ends on some day", "ternctl pki issue");
  expect(ends(-1), Grade::fault, "node1 ends on some day", "reload ternd");
}

TEST(Doctor, OfCertificatesSaysFirstWhatIsAFaultNow) {
  Node node;
  node.status["peer_security"] = "tls";
  node.status["advertise"] = "10.0.0.5:7700";
  const auto certificate = [&](const char* kind, const char* subject, std::int64_t days) {
    return json{{"kind", kind},
                {"subject", subject},
                {"names", {subject}},
                {"expires", "some day"},
                {"not_after_s", node.machine.unix_s + days * 86'400}};
  };
  node.status["certificates"] =
      json::array({certificate("authority", "CA", 20), certificate("node", "10.0.0.5", -1)});
  expect(node.about("security"), Grade::fault, "10.0.0.5 ends on some day", "reload ternd");
  node.status["certificates"] = json::array({certificate("node", "node5", 20)});
  expect(node.about("security"), Grade::fault, "node5 is not for 10.0.0.5", "advertise");
}

TEST(Doctor, SaysHowToTurnHugePagesOn) {
  Node node;
  node.machine.huge_pages = "always within_size advise [never] deny force";
  expect(node.about("huge pages"), Grade::advice, "off", "echo advise");
  node.machine.huge_pages = "";
  expect(node.about("huge pages"), Grade::advice, "does not say", "CONFIG_TRANSPARENT_HUGEPAGE");
}

TEST(Doctor, SeesVectorsThatAreNotUsedOrNotThere) {
  Node node;
  node.status["kernel_target"] = "scalar";
  expect(node.about("processor"), Grade::advice, "codecs use scalar", "kernel_target");
  node.machine.cpu_flags = " sse2 ";
  expect(node.about("processor"), Grade::advice, "no vectors", "raw");
}

TEST(Doctor, SeesAnAddressThatOthersCannotReach) {
  Node node;
  node.status["advertise"] = "127.0.0.1:7700";
  expect(node.about("port"), Grade::advice, "this machine only", "listen");
  node.status["advertise"] = "[::1]:7700";
  expect(node.about("port"), Grade::advice, "this machine only", "listen");
  node.status["advertise"] = "192.0.2.9:7700";
  node.machine.advertised = {"192.0.2.9"};
  expect(node.about("port"), Grade::advice, "no address of this machine", "advertise");
  node.status["advertise"] = "node5.cluster:7700";
  expect(node.about("port"), Grade::advice, "node5.cluster:7700 is no address of", "advertise");
  for (const char* const own : {"10.0.0.5", "127.0.1.1"}) {
    node.machine.advertised = {own};
    expect(node.about("port"), Grade::good, "told node5.cluster:7700", "");
  }
  node.machine.advertised.clear();
  expect(node.about("port"), Grade::advice, "node5.cluster has no address", "/etc/hosts");
}

TEST(Doctor, SeesThatTheDaemonDoesNotListenWhereOthersDial) {
  Node node;
  node.status["listen"] = "127.0.0.1:7700";
  expect(node.about("port"), Grade::fault,
         "told 10.0.0.5:7700, but the daemon listens on 127.0.0.1", "0.0.0.0");
  node.status["listen"] = "10.0.0.5:7700";
  expect(node.about("port"), Grade::good, "told 10.0.0.5:7700", "");
  // One of the addresses of a name is enough, for all are dialled.
  node.machine.interfaces.push_back({"eth0", "2001:db8::5", 25000});
  node.machine.advertised = {"2001:db8::5", "10.0.0.5"};
  expect(node.about("port"), Grade::good, "told", "");
  node.machine.advertised = {"2001:db8::5"};
  expect(node.about("port"), Grade::fault, "listens on 10.0.0.5 alone", "0.0.0.0");
  // A machine's own name, which leads to itself and is where nobody else comes.
  node.status["advertise"] = "node5:7700";
  node.machine.advertised = {"127.0.1.1"};
  node.status["listen"] = "127.0.1.1:7700";
  expect(node.about("port"), Grade::fault, "listens on 127.0.1.1 alone", "0.0.0.0");
}

TEST(Doctor, SeesACertificateForAnotherName) {
  Node node;
  node.status["peer_security"] = "tls";
  const auto security = [&](const json& names, const char* kind = "node") {
    node.status["certificates"] =
        json::array({{{"kind", kind},
                      {"subject", "node5"},
                      {"names", names},
                      {"expires", "some day"},
                      {"not_after_s", node.machine.unix_s + std::int64_t{100} * 86'400}}});
    return node.about("security");
  };
  expect(security({"node5", "10.0.0.5"}), Grade::good, "tls", "");
  expect(security({"node5"}), Grade::fault, "node5 is not for 10.0.0.5", "ternctl pki issue");
  expect(security({"tern CA"}, "authority"), Grade::good, "tls", "");
  node.status["advertise"] = "Node5.lab.cluster:7700";
  expect(security({"node5.LAB.cluster"}), Grade::good, "tls", "");
  expect(security({"*.lab.cluster"}), Grade::good, "tls", "");
  for (const char* const other : {"*.cluster", "*.other.cluster", "lab.cluster"}) {
    expect(security({other}), Grade::fault, "not for Node5.lab.cluster", "advertise");
  }
  node.status["advertise"] = "short.cluster:7700";  // peers take no star for all of a domain
  expect(security({"*.cluster"}), Grade::fault, "not for short.cluster", "advertise");
  node.status["advertise"] = "[2001:db8:0::5]:7700";
  expect(security({"2001:db8::5"}), Grade::good, "tls", "");
  // Without names the subject's counts.
  node.status["advertise"] = "node5:7700";
  expect(security(json::array()), Grade::good, "tls", "");
}

TEST(Doctor, LooksAtPortLinksMemoryAndProcessorWithoutADaemon) {
  Node node;
  expect(node.alone_about("port"), Grade::good, "7700 is free", "");
  expect(node.alone_about("network"), Grade::good, "eth0 at 25,000 Mbit/s", "");
  expect(node.alone_about("memory lock"), Grade::good, "enough", "");
  expect(node.alone_about("processor"), Grade::good, "AVX2", "");
  node.machine.default_port_taken = true;
  node.machine.memlock_bytes = 8 << 20;
  expect(node.alone_about("port"), Grade::advice, "taken", "ss -ltnp");
  node.machine.interfaces = {{"lo", "127.0.0.1", 0},
                             {"eth1", "10.0.1.5", 1000},
                             {"eth0", "10.0.0.5", 25000},
                             {"eth1", "fe80::6", 1000},
                             {"eth0", "fe80::5", 25000}};
  int links = 0;
  for (const Finding& finding : examine_machine(node.machine))
    links += finding.subject == "network";
  EXPECT_EQ(links, 2);
  expect(node.alone_about("network"), Grade::advice, "1,000 Mbit/s", "compress gradients");
  expect(node.alone_about("memory lock"), Grade::advice, "8 MiB", "systemctl start ternd");
  node.machine.interfaces.clear();
  EXPECT_EQ(node.alone_about("network").grade, Grade::good);
}

TEST(Doctor, ReadsTheTableOfSockets) {
  std::istringstream table(
      "  sl  local_address rem_address   st tx_queue rx_queue tr\n"
      "   0: 0100007F:1E14 00000000:0000 0A 00000000:00000000 00:00000000\n"
      "   1: 0100007F:1E15 0100007F:9C40 01 00000000:00000000 00:00000000\n"
      "odd\n");
  EXPECT_TRUE(listens_on(table, 0x1e14));
  for (const std::uint16_t port : std::vector<std::uint16_t>{0x1e15, 0x9c40, 1}) {
    table.clear();
    table.seekg(0);
    EXPECT_FALSE(listens_on(table, port)) << port;
  }
}

TEST(Doctor, SeesASlowLink) {
  Node node;
  EXPECT_THAT(node.about("network").text, HasSubstr("eth0 at 25,000 Mbit/s"));
  node.machine.interfaces[1].speed_mbit = 1000;
  expect(node.about("network"), Grade::advice, "1,000 Mbit/s", "compress gradients");
  node.machine.interfaces[1].speed_mbit = 0;
  EXPECT_EQ(node.about("network").grade, Grade::good);
}

TEST(Doctor, SeesThatRecordsCannotBeWritten) {
  Node node;
  node.host["flight_free_bytes"] = 1u << 20;
  expect(node.about("flight records"), Grade::advice, "1 MiB left", "room");
  node.host["flight_writable"] = false;
  expect(node.about("flight records"), Grade::fault, "/var/lib/tern", "ReadWritePaths");
}

TEST(Doctor, SeesSilentLanesBrokenLinksRefusedPeersAndAFreeRunningClock) {
  Node node;
  node.status["silent_lanes"] = {2};
  expect(node.about("lanes"), Grade::fault, "[2]", "restart");
  node.counters["hellos_refused"]["value"] = 3u;
  expect(node.about("peers"), Grade::advice, "3 connections", "version");
  node.peers[0]["state"] = "resuming";
  expect(node.about("peers"), Grade::fault, "1 links", "ternctl peers");
  node.machine.clock_synchronized = false;
  expect(node.about("clock"), Grade::advice, "not synchronized", "chrony");
}

TEST(Doctor, IsNotConfusedByAnotherVersionsAnswers) {
  EXPECT_FALSE(examine({}, {json(), json(), json(), json(), json()}).empty());
  for (const char* text : {"[]", "7", R"({"silent_lanes":7,"hellos_refused":[]})"}) {
    const json odd = json::parse(text);
    EXPECT_EQ(examine({}, {odd, odd, odd, odd, odd}).size(), Node().findings().size()) << text;
  }
}

TEST(Doctor, SaysWhatItIsNotShownInsteadOfJudgingIt) {
  const Node node;
  const auto findings = examine(node.machine, {node.status, json(), json(), json(), json::array()});
  std::string subjects;
  for (const Finding& finding : findings) {
    subjects += finding.subject + ",";
    if (finding.subject == "rights") {
      EXPECT_EQ(finding.grade, Grade::advice);
      EXPECT_THAT(finding.remedy, HasSubstr("observers"));
    } else {
      EXPECT_EQ(finding.grade, Grade::good) << finding.subject;
    }
  }
  EXPECT_EQ(subjects, "lanes,port,network,huge pages,processor,RDMA,clock,security,rights,");
}

TEST(Doctor, PrintsTheRemedyBelowWhatItIsFor) {
  EXPECT_EQ(render_findings({{Grade::good, "clock", "synchronized", ""},
                             {Grade::fault, "lanes", "silent", "restart"}}),
            "good    clock: synchronized\nfault   lanes: silent\n        -> restart\n");
}

TEST(Doctor, SeesPortsOfRdmaDevicesThatAreNotActive) {
  Node node;
  expect(node.about("RDMA"), Grade::good, "no device", "");
  node.machine.rdma_ports = {{"mlx5_0", "1", "ACTIVE", "InfiniBand"}};
  expect(node.about("RDMA"), Grade::good, "mlx5_0 port 1 (InfiniBand)", "");
  node.machine.rdma_ports.push_back({"rxe0", "1", "DOWN", "Ethernet"});
  expect(node.about("RDMA"), Grade::advice, "not active: rxe0 port 1 (DOWN)", "ip link set");
}

TEST(Doctor, SaysWhyTheDaemonCannotUseARdmaDevice) {
  Node node;
  node.machine.rdma_ports = {{"mlx5_0", "1", "ACTIVE", "InfiniBand"}};
  node.status["carriers"] = "TCP, as configured";
  expect(node.about("RDMA"), Grade::good, "active", "");
  node.status["carriers"] = "TCP: no RDMA device is usable; mlx5_0: no permission";
  expect(node.about("RDMA"), Grade::advice, "mlx5_0: no permission", "docs/rdma.md");
  node.peers = nullptr;  // shown to observers alone
  expect(node.about("RDMA"), Grade::advice, "mlx5_0: no permission", "docs/rdma.md");
  node.peers = json::array({{{"state", "up"}, {"transport", "rdma"}}});
  expect(node.about("RDMA"), Grade::good, "active", "");
}

// What is to be said of RDMA beside the state of its ports.
TEST(Doctor, TheDriverOfGpusIsOneThatTheLibraryTakes) {
  Node node;
  EXPECT_EQ(node.about("GPU").text, "nobody looked");
  node.machine.nvidia_driver = "535.104.05";
  expect(node.about("GPU"), Grade::good, "535.104.05", "");
  expect(node.alone_about("GPU"), Grade::good, "535.104.05", "");
  node.machine.nvidia_driver = "470.82.01";
  expect(node.about("GPU"), Grade::advice, "older than CUDA 12.0", "525 or newer");
}

TEST(Doctor, NamesProgramsThatCouldNotPinMemory) {
  Node node;
  node.clients[0]["devices"] = json::array({{{"device", 0}, {"pinning_failures", 0}}});
  EXPECT_EQ(node.about("GPU").text, "nobody looked");
  node.clients[0]["devices"].push_back(
      {{"device", 1}, {"pinning_failures", 2}, {"pinning_problem", "cannot pin\n\x1b[2J"}});
  expect(node.about("GPU"), Grade::advice,
         "client 7 (pid 4242, job resnet) could not pin memory for its device 1: cannot pin\\x0a",
         "ulimit -l unlimited");
  for (const char* const odd : {"7", "[7]", R"([{"pinning_failures":[]}])", R"([null,{}])"}) {
    node.clients[0]["devices"] = json::parse(odd);
    EXPECT_FALSE(node.findings().empty()) << odd;
  }
}

TEST(Doctor, TheDriverOfGpusSaysItsVersion) {
  EXPECT_EQ(
      nvidia_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19"),
      "535.104.05");
  EXPECT_EQ(nvidia_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  "
                           "Release Build"),
            "550.54.15");
  EXPECT_EQ(nvidia_version(""), "");
  EXPECT_EQ(nvidia_version("1. .5 NVRM"), "");
}

std::string rdma_advice(const Node& node) {
  std::string advice;
  for (const Finding& finding : node.findings()) {
    if (finding.subject != "RDMA" || finding.grade == Grade::good) continue;
    advice += finding.text + " -> " + finding.remedy + "\n";
  }
  return advice;
}

TEST(Doctor, SeesRdmaPortsWithoutAddressesOrWithSmallPackets) {
  Node node;
  RdmaPort port{"mlx5_0", "1", "ACTIVE", "Ethernet"};
  port.interface = "eth7";
  port.interface_mtu = 9000;
  node.machine.rdma_ports = {port};
  EXPECT_EQ(rdma_advice(node), "");
  port.has_roce_v2_gid = false;
  port.interface_mtu = 1500;
  node.machine.rdma_ports = {port};
  EXPECT_THAT(rdma_advice(node), HasSubstr("no GID of RoCE v2"));
  EXPECT_THAT(rdma_advice(node), HasSubstr("eth7, whose MTU of 1500"));
  EXPECT_THAT(rdma_advice(node), HasSubstr("ip link set eth7 mtu 9000"));
  node.machine.rdma_ports = {{"mlx5_0", "1", "ACTIVE", "InfiniBand", false, false}};
  EXPECT_THAT(rdma_advice(node), HasSubstr("subnet manager"));
}

TEST(Doctor, QuotesALinkThatHasNotComeToRdma) {
  Node node;
  node.machine.rdma_ports = {{"mlx5_0", "1", "ACTIVE", "InfiniBand"}};
  node.status["carriers"] = "RDMA over mlx5_0:1 where the peer has it too, else TCP";
  node.peers = json::array({{{"state", "up"},
                             {"address", "10.0.0.6:7700"},
                             {"transport", "tcp"},
                             {"transport_note", "the peer says: its port is down"}}});
  EXPECT_THAT(rdma_advice(node),
              HasSubstr("10.0.0.6:7700 is on tcp: the peer says: its port is down"));
  node.peers[0]["transport_note"] = "the settings say so";
  EXPECT_EQ(rdma_advice(node), "");
}

// Without a daemon, which would say itself.
TEST(Doctor, SeesARdmaNodeThatCannotBeOpened) {
  Machine machine;
  RdmaPort port{"mlx5_0", "1", "ACTIVE", "InfiniBand"};
  port.node_problem = "/dev/infiniband/uverbs0 cannot be opened by this user: Permission denied";
  machine.rdma_ports = {port};
  EXPECT_THAT(render_findings(examine_machine(machine)),
              HasSubstr("mlx5_0 port 1: /dev/infiniband/uverbs0 cannot be opened"));
}

TEST(Doctor, ReadsRdmaDevicesAsTheKernelShowsThem) {
  char directory[] = "/tmp/tern_doctor_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::filesystem::path root = directory;
  const auto write = [&](const std::string& path, const char* line) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << line << "\n";
  };
  const std::string port = "infiniband/rxe0/ports/1/";
  write(port + "state", "4: ACTIVE");
  write(port + "link_layer", "Ethernet");
  write(port + "gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001");
  write(port + "gid_attrs/types/0", "IB/RoCE v1");
  write(port + "gid_attrs/ndevs/0", "eth7");
  write(port + "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
  write("net/eth7/mtu", "1500");
  write("infiniband_verbs/uverbs3/ibdev", "rxe0");
  const auto ports = read_rdma_ports(directory, directory);
  write("uverbs3", "");
  write(port + "gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001");
  write(port + "gid_attrs/types/1", "RoCE v2");
  const auto later = read_rdma_ports(directory, directory);
  std::filesystem::remove_all(directory);
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_TRUE(ports[0].has_gid);
  EXPECT_FALSE(ports[0].has_roce_v2_gid);
  EXPECT_EQ(ports[0].interface, "eth7");
  EXPECT_EQ(ports[0].interface_mtu, 1500u);
  EXPECT_THAT(ports[0].node_problem, HasSubstr("uverbs3 cannot be opened"));
  ASSERT_EQ(later.size(), 1u);
  EXPECT_TRUE(later[0].has_roce_v2_gid);
  EXPECT_EQ(later[0].node_problem, "");
  EXPECT_EQ(ports[0].device, "rxe0");
  EXPECT_EQ(ports[0].port, "1");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].link_layer, "Ethernet");
  EXPECT_TRUE(read_rdma_ports("/nonexistent", "/nonexistent").empty());
}

TEST(Doctor, ComparesVersionsAndCalendarsWithThoseOfPeers) {
  Node node;
  node.status["version"] = "0.1.0";
  node.peers = json::array({{{"state", "up"},
                             {"lane", "control"},
                             {"address", "10.0.0.6:7700"},
                             {"software", "0.1.0"},
                             {"calendar_skew_ms", -40.0},
                             {"calendar_error_ms", 0.5}}});
  expect(node.about("versions"), Grade::good, "no peer", "");
  expect(node.about("clocks of peers"), Grade::good, "none", "");
  node.peers[0]["software"] = "0.2.0";
  node.peers[0]["calendar_skew_ms"] = -2500.0;
  expect(node.about("versions"), Grade::advice, "10.0.0.6:7700 runs 0.2.0, this node 0.1.0",
         "upgrade");
  expect(node.about("clocks of peers"), Grade::advice, "10.0.0.6:7700 is 2.5 s behind", "chrony");
  // What may be a matter of the measurement is not held against the peer.
  node.peers[0]["calendar_error_ms"] = 2450.0;
  expect(node.about("clocks of peers"), Grade::good, "none", "");
}

TEST(Doctor, ReadsThisMachine) {
  const Machine machine = read_machine("127.0.0.1:7700");
  EXPECT_THAT(machine.advertised, ::testing::ElementsAre("127.0.0.1"));
  EXPECT_THAT(machine.interfaces,
              ::testing::Contains(::testing::Field(&Interface::address, "127.0.0.1")));
  EXPECT_THAT(machine.cpu_flags, ::testing::EndsWith(" "));
}

}  // namespace
}  // namespace tern::ctl
