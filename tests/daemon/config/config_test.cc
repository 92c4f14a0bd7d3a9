#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "daemon/config/command_line.h"
#include "daemon/config/config_file.h"
#include "daemon/config/documents.h"
#include "daemon/config/settings.h"
#include "daemon/config/units.h"
#include "daemon/config/user_list.h"

namespace tern::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The error of a file with this text, or "" if it is accepted.
std::string error_of(std::string_view toml) {
  Config config;
  const auto status = apply_config_text(config, toml, "t.toml");
  return status ? "" : status.error().text;
}

std::string error_of_arguments(const std::vector<std::string>& arguments) {
  const auto line = parse_command_line(arguments, "1.2.3");
  return line ? "" : line.error().text;
}

TEST(Units, SizesAndDurationsSurviveTheRoundTrip) {
  for (const std::uint64_t value :
       {0ULL, 1ULL, 1023ULL, 1024ULL, 262144ULL, 1ULL << 30, (1ULL << 40) + 1, 1ULL << 50}) {
    EXPECT_EQ(parse_size(format_size(value)).value(), value) << format_size(value);
    EXPECT_EQ(parse_duration(format_duration(value)).value(), value) << format_duration(value);
  }
  EXPECT_EQ(format_size(262144), "256KiB");
  EXPECT_EQ(format_duration(600'000'000'000), "10min");
  EXPECT_EQ(parse_size("1 GiB").value(), 1ULL << 30);
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_duration("0").value(), 0u);
  EXPECT_EQ(parse_duration("2h").value(), 7'200'000'000'000u);
}

TEST(Units, RefusesWhatIsNotASizeOrADuration) {
  for (const char* const text : {"", "KiB", "-1KiB", "1KB", "1.5KiB", "1 KiB ", "0x10",
                                 "18446744073709551616", "16777216TiB"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
  for (const char* const text : {"", "5", "5 minutes", "1.5s", "s", "999999999999999999h"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(Units, EndpointsKeepIpv6InBrackets) {
  const auto v6 = parse_endpoint("[fe80::1%eth0]:7700");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "fe80::1%eth0");
  EXPECT_EQ(format_endpoint(*v6), "[fe80::1%eth0]:7700");
  EXPECT_EQ(format_endpoint(parse_endpoint("node-1.example:0").value()), "node-1.example:0");
  EXPECT_EQ(format_endpoint(parse_endpoint("[10.0.0.5]:7700").value()), "10.0.0.5:7700");
  for (const char* const text : {"", "host", "host:", ":1", "host:65536", "host:-1", "a:b:1",
                                 "::1:7700", "[host]:1", "ho st:1", "host:1x"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

TEST(Settings, TheTableIsConsistent) {
  const Config defaults;
  std::set<std::string_view> names;
  for (const Setting& row : settings()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.help.ends_with('.')) << row.name;
    // A default must be allowed and have a text form that reads back.
    Config config;
    const auto status = set_from_text(config, row, value_text(defaults, row));
    EXPECT_TRUE(status) << row.name << ": " << (status ? "" : status.error().text);
    EXPECT_EQ(value_text(config, row), value_text(defaults, row));
  }
  EXPECT_TRUE(check_config(defaults));
}

TEST(Settings, TheSampleFileReadsBackAsTheDefaults) {
  EXPECT_EQ(error_of(sample_config()), "");
  // The same with every setting uncommented.
  std::istringstream lines(sample_config());
  std::string uncommented;
  for (std::string line; std::getline(lines, line);) {
    const bool is_setting = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    uncommented += (is_setting ? line.substr(1) : line) + "\n";
  }
  Config config;
  config.lanes = 7;
  config.verify = true;
  config.allowed_uids = {1};
  const auto status = apply_config_text(config, uncommented, "t.toml");
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_TRUE(config_changes(Config{}, config).empty());
}

TEST(Settings, ThePageIsWhatTheTablePrints) {
  std::ifstream page(TERN_SETTINGS_PAGE);
  const std::string text{std::istreambuf_iterator<char>(page), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, settings_markdown())
      << "docs/settings.md is old; write it anew with `ternd --print-settings-markdown`";
}

TEST(ConfigFile, ReadsEveryKindOfValue) {
  Config config;
  const auto status = apply_config_text(config, R"(
[network]
listen = "[::1]:0"
advertise = "10.0.0.7:7701"
peer_timeout = "1500ms"
socket_send_buffer = 4194304
[local]
socket_mode = "0600"
allowed_uids = [0, 1000]
[lanes]
lanes = 3
pin_lanes = true
spin = 0
[ops]
chunk_bytes = "64KiB"
[codec]
default_gradient_recipe = "3lc:s=1"
[diagnostics]
log_level = "debug"
)",
                                        "t.toml");
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_EQ(config.listen, (Endpoint{"::1", 0}));
  EXPECT_EQ(config.advertise, (Endpoint{"10.0.0.7", 7701}));
  EXPECT_EQ(config.peer_timeout_ns, 1'500'000'000u);
  EXPECT_EQ(config.socket_send_buffer_bytes, 4u << 20);
  EXPECT_EQ(config.socket_mode, 0600u);
  EXPECT_EQ(config.allowed_uids, (std::vector<std::uint32_t>{0, 1000}));
  EXPECT_EQ(config.lanes, 3u);
  EXPECT_TRUE(config.pin_lanes);
  EXPECT_EQ(config.spin_ns, 0u);
  EXPECT_EQ(config.chunk_bytes, 65'536u);
  EXPECT_EQ(config.default_gradient_recipe, "3lc:s=1");
  EXPECT_EQ(config.log_level, "debug");
}

TEST(ConfigFile, NamesPlaceMistakeAndRemedy) {
  EXPECT_EQ(error_of("[lanes]\nlanes = 17\n"),
            "t.toml:2:9: lanes: 17 is out of range; allowed: 1 to 16");
  EXPECT_EQ(error_of("[ops]\n  op_timout = \"1s\"\n"),
            "t.toml:2:3: unknown key \"op_timout\"; did you mean op_timeout?");
  EXPECT_EQ(error_of("[ops]\nchunk_bytes = \"48KiB\"\n"),
            "t.toml:2:15: chunk_bytes: 48KiB is not a power of two; "
            "allowed: 16KiB to 4MiB, a power of two");
  EXPECT_EQ(error_of("[network]\nlanes = 2\n"),
            "t.toml:2:1: lanes is not a setting of [network]; put it under [lanes]");
  EXPECT_EQ(error_of("op_timeout = \"1s\"\n"),
            "t.toml:1:1: op_timeout stands outside of its table; put it under [ops]");
  EXPECT_EQ(
      error_of("[diagnostics]\nlog_level = \"loud\"\n"),
      "t.toml:2:13: log_level: \"loud\" is not a choice; allowed: error, warning, info, debug");
  EXPECT_THAT(error_of("[ops]\nop_timeout = 10\n"), HasSubstr("in quotes and with a unit"));
  EXPECT_THAT(error_of("[ops]\nop_timeout = \"10\"\n"), HasSubstr("lacks a unit"));
  EXPECT_THAT(error_of("[lanes]\nlanes = \"2\"\n"), HasSubstr("wrong type; allowed: 1 to 16"));
  EXPECT_THAT(error_of("[lanes]\nlanes = -1\n"), HasSubstr("-1 is negative"));
  EXPECT_THAT(error_of("[lanes]\nlanes = 2.0\n"), HasSubstr("wrong type"));
  EXPECT_THAT(error_of("[local]\nallowed_uids = [1, -2]\n"),
              HasSubstr("t.toml:2:20: allowed_uids"));
  EXPECT_THAT(error_of("[ops\n"), HasSubstr("t.toml:1:"));
  EXPECT_THAT(error_of("zzzzzzzzzzzzzzzzzzzz = 1\n"), HasSubstr("--print-sample-config"));
  EXPECT_THAT(error_of("lanes = 2\n[[ops]]\n"), HasSubstr("ops"));
}

TEST(ConfigFile, ReportsAllMistakesAtOnce) {
  const std::string text = error_of("[lanes]\nlanes = 0\nspinn = \"1us\"\n");
  EXPECT_THAT(text, HasSubstr("t.toml:2:9: lanes"));
  EXPECT_THAT(text, HasSubstr("\nt.toml:3:1: unknown key \"spinn\""));
}

TEST(ConfigFile, AnAbsentFileIsNamed) {
  Config config;
  const auto status = apply_config_file(config, "/nonexistent/ternd.toml");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().text, HasSubstr("/nonexistent/ternd.toml"));
}

TEST(CommandLine, OptionsGoBeforeTheFile) {
  const std::string path = ::testing::TempDir() + "tern_config_test.toml";
  std::ofstream(path) << "[lanes]\nlanes = 2\nspin = \"5us\"\n";
  const auto line =
      parse_command_line({"--config", path, "--lanes=4", "--op-timeout", "5s", "--max_groups=3",
                          "--verify", "true", "--allowed-uids", "0,1000", "--lanes", "5"},
                         "1.2.3");
  std::remove(path.c_str());
  ASSERT_TRUE(line) << line.error().text;
  EXPECT_FALSE(line->print);
  EXPECT_EQ(line->config_file, path);
  EXPECT_EQ(line->config.lanes, 5u);
  EXPECT_EQ(line->config.spin_ns, 5'000u);
  EXPECT_EQ(line->config.op_timeout_ns, 5'000'000'000u);
  EXPECT_EQ(line->config.max_groups, 3u);
  EXPECT_TRUE(line->config.verify);
  EXPECT_EQ(line->config.allowed_uids, (std::vector<std::uint32_t>{0, 1000}));
}

TEST(CommandLine, NamesTheOptionThatIsWrong) {
  EXPECT_EQ(error_of_arguments({"--lanes", "99"}), "--lanes: 99 is out of range; allowed: 1 to 16");
  EXPECT_EQ(error_of_arguments({"--op-timout=1s"}),
            "--op-timout=1s: unknown option; did you mean --op-timeout?");
  EXPECT_THAT(error_of_arguments({"stray"}), HasSubstr("stray: is not an option"));
  EXPECT_THAT(error_of_arguments({"--lanes"}), HasSubstr("--lanes"));
}

TEST(CommandLine, PrintsAndEnds) {
  EXPECT_EQ(parse_command_line({"--version"}, "1.2.3")->print.value(), "ternd 1.2.3\n");
  EXPECT_EQ(parse_command_line({"--print-sample-config"}, "1.2.3")->print.value(), sample_config());
  EXPECT_EQ(parse_command_line({"--print-settings-markdown"}, "1.2.3")->print.value(),
            settings_markdown());
  EXPECT_EQ(parse_command_line({"--print-settings-manual"}, "1.2.3")->print.value(),
            settings_manual("1.2.3"));
  const std::string help = parse_command_line({"--help"}, "1.2.3")->print.value();
  for (const Setting& row : settings()) EXPECT_THAT(help, HasSubstr(std::string(row.help)));
}

TEST(CheckConfig, RefusesSettingsThatContradictEachOther) {
  EXPECT_THAT(error_of_arguments({"--heartbeat=3s"}), HasSubstr("heartbeat: 3s is too rare"));
  EXPECT_THAT(error_of_arguments({"--listen=0.0.0.0:7700"}), HasSubstr("advertise: must be set"));
  EXPECT_EQ(error_of_arguments(
                {"--listen=0.0.0.0:7700", "--advertise=10.0.0.1:0", "--peer-security=plaintext"}),
            "");
  EXPECT_THAT(error_of_arguments({"--advertise=[::]:1"}), HasSubstr("wildcard"));
  EXPECT_THAT(error_of_arguments({"--socket=/a", "--control-socket=/a"}), HasSubstr("same path"));
}

TEST(CheckConfig, RefusesToBeOpenToOthersWithoutASecurity) {
  for (const char* listen : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"}) {
    EXPECT_EQ(error_of_arguments({std::string("--listen=") + listen}), "") << listen;
  }
  for (const char* listen : {"10.0.0.1:1", "[fd00::1]:1", "node1:1"}) {
    EXPECT_THAT(error_of_arguments({std::string("--listen=") + listen}),
                AllOf(HasSubstr("peer_security: "), HasSubstr("\"tls\""), HasSubstr("ternctl pki"),
                      HasSubstr("\"plaintext\"")))
        << listen;
  }
}

TEST(CheckConfig, WantsTheFilesThatASecurityNeeds) {
  EXPECT_THAT(error_of_arguments({"--peer-security=tls", "--tls-ca-file=a", "--tls-key-file=b"}),
              HasSubstr("tls_certificate_file"));
  EXPECT_THAT(error_of_arguments({"--peer-security=key"}), HasSubstr("cluster_key_file"));
}

TEST(CheckConfig, RefusesRdmaThatWouldNotEncrypt) {
  const std::vector<std::string> key{"--peer-security=key", "--cluster-key-file=a"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), key.begin(), key.end());
    return error_of_arguments(more);
  };
  EXPECT_EQ(with({"--transport=auto"}), "");
  EXPECT_THAT(with({"--transport=rdma"}), HasSubstr("rdma_unencrypted = true"));
  EXPECT_THAT(with({"--peer-transports=10.0.0.1=rdma"}), HasSubstr("rdma_unencrypted = true"));
  EXPECT_EQ(with({"--transport=rdma", "--rdma-unencrypted=true"}), "");
}

TEST(Config, TheManualPageNamesEverySettingAndEscapesWhatTroffWouldTake) {
  const std::string page = settings_manual("1.2.3");
  EXPECT_THAT(page, ::testing::StartsWith(".TH TERND.TOML 5 \"\" \"Tern 1.2.3\""));
  for (const Setting& row : settings()) {
    EXPECT_THAT(page, HasSubstr("\n\\fB" + std::string(row.name) + "\\fR = ")) << row.name;
  }
  EXPECT_THAT(page, HasSubstr("N \\- 1"));
  EXPECT_THAT(page, Not(HasSubstr("\n\n")));
}

TEST(Config, TheAdvertisedEndpointFollowsTheOneThatListens) {
  Config config;
  config.listen = {"10.0.0.1", 0};
  EXPECT_EQ(advertised_endpoint(config, 4242), (Endpoint{"10.0.0.1", 4242}));
  config.advertise = {"node7", 0};
  EXPECT_EQ(advertised_endpoint(config, 4242), (Endpoint{"node7", 4242}));
  config.advertise.port = 9;
  EXPECT_EQ(advertised_endpoint(config, 4242), (Endpoint{"node7", 9}));
}

TEST(Config, FlightRecordsGoWhereToldElseToTheStateDirectoryElseBesideTheControlSocket) {
  Config config;
  ::unsetenv("STATE_DIRECTORY");
  EXPECT_EQ(flight_directory(config), "/run/tern");
  ::setenv("STATE_DIRECTORY", "/var/lib/tern:/var/lib/other", 1);
  EXPECT_EQ(flight_directory(config), "/var/lib/tern");
  config.flight_directory = "/srv/records";
  EXPECT_EQ(flight_directory(config), "/srv/records");
  ::unsetenv("STATE_DIRECTORY");
}

TEST(UserList, TellsUsersFromGroupsAndNamesFromNumbers) {
  const auto list =
      parse_user_list(" alice, 1000,@gpu , @1001,bob.b-2@example.com,LAB\\carol,svc$");
  ASSERT_TRUE(list) << list.error().text;
  EXPECT_EQ(list->users.names,
            (std::vector<std::string>{"alice", "bob.b-2@example.com", "LAB\\carol", "svc$"}));
  EXPECT_EQ(list->users.numbers, (std::vector<std::uint32_t>{1000}));
  EXPECT_EQ(list->groups.names, (std::vector<std::string>{"gpu"}));
  EXPECT_EQ(list->groups.numbers, (std::vector<std::uint32_t>{1001}));
  for (const char* empty : {"", "  "}) {
    const auto none = parse_user_list(empty);
    ASSERT_TRUE(none);
    EXPECT_TRUE(none->users.names.empty() && none->users.numbers.empty());
    EXPECT_TRUE(none->groups.names.empty() && none->groups.numbers.empty());
  }
  EXPECT_EQ(parse_user_list("4294967294")->users.numbers.front(), 4294967294u);
}

TEST(UserList, NamesTheEntryThatIsWrong) {
  for (const std::string wrong : {"@", "@@gpu", "-alice", "a b", "a:b", "a/b", "4294967295",
                                  "@4294967295", "99999999999", "a;b"}) {
    const auto list = parse_user_list("alice," + wrong);
    ASSERT_FALSE(list) << wrong;
    EXPECT_THAT(list.error().text, HasSubstr("\"" + wrong + "\" is no user or group; allowed:"));
  }
  for (const char* wrong : {",", "alice,", ",alice", "alice,,bob"}) {
    EXPECT_FALSE(parse_user_list(wrong)) << wrong;
  }
  EXPECT_FALSE(parse_user_list(std::string(257, 'a')));
}

TEST(Config, ListsOfUsersAreChecked) {
  EXPECT_THAT(error_of_arguments({"--observers", "@gpu,@"}),
              HasSubstr("observers: \"@\" is no user or group"));
  EXPECT_THAT(error_of_arguments({"--administrators=alice bob"}),
              HasSubstr("administrators: \"alice bob\" is no user or group"));
  EXPECT_EQ(error_of_arguments({"--observers", "", "--administrators", "alice,@1001"}), "");
}

TEST(Config, AUsersOperationsHaveRoomForAGroup) {
  EXPECT_THAT(
      error_of_arguments({"--max-ops-in-flight", "64", "--max-ops-in-flight-per-user", "63"}),
      HasSubstr("max_ops_in_flight_per_user: 63 leaves a user no group"));
  EXPECT_EQ(error_of_arguments({"--max-ops-in-flight", "64", "--max-ops-in-flight-per-user", "64"}),
            "");
}

TEST(Config, AReloadTakesOnlyWhatMayChange) {
  Config fresh;
  fresh.lanes = 4;
  fresh.op_timeout_ns = 5'000'000'000;
  const auto changes = config_changes(Config{}, fresh);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].name, "lanes");
  EXPECT_FALSE(changes[0].reloadable);
  EXPECT_EQ(changes[1].before, "10min");
  EXPECT_EQ(changes[1].after, "5s");
  EXPECT_TRUE(changes[1].reloadable);
  const Config merged = with_reloadable(Config{}, fresh);
  EXPECT_EQ(merged.lanes, 1u);
  EXPECT_EQ(merged.op_timeout_ns, 5'000'000'000u);
}

}  // namespace
}  // namespace tern::daemon
