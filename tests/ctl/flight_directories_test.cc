#include "ctl/flight_directories.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tern::ctl {
namespace {

using Directories = std::vector<std::string>;

TEST(FlightDirectories, AreWhereTheDaemonSays) {
  EXPECT_EQ(flight_directories({{"flight_directory", "/srv/records"}}, "/run/tern/control.sock"),
            Directories{"/srv/records"});
}

TEST(FlightDirectories, OfASilentDaemonAreThoseOfItsSocketAndOfTheService) {
  EXPECT_EQ(flight_directories({}, "/run/tern-ib0/control.sock"),
            (Directories{"/run/tern-ib0", "/var/lib/tern-ib0", "/var/lib/tern"}));
  EXPECT_EQ(flight_directories({{"flight_directory", 5}}, "/srv/fast/control.sock"),
            (Directories{"/srv/fast", "/var/lib/fast", "/var/lib/tern"}));
}

TEST(FlightDirectories, NameNoDirectoryTwice) {
  EXPECT_EQ(flight_directories({}, "/run/tern/control.sock"),
            (Directories{"/run/tern", "/var/lib/tern"}));
  EXPECT_EQ(flight_directories({}, "/var/lib/tern/control.sock"), Directories{"/var/lib/tern"});
}

}  // namespace
}  // namespace tern::ctl
