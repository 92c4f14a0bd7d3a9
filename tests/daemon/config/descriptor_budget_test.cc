#include "daemon/config/descriptor_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tern::daemon {
namespace {

// LimitNOFILE= of the packaged unit.
std::uint64_t packaged_limit() {
  std::ifstream unit(TERN_UNIT);
  const std::string key = "LimitNOFILE=";
  for (std::string line; std::getline(unit, line);) {
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(key.size()));
  }
  ADD_FAILURE() << TERN_UNIT << " has no " << key;
  return 0;
}

TEST(DescriptorBudget, ThatOfTheUnitSufficesForTheDefaults) {
  const Config config;
  const DescriptorBudget budget = descriptor_budget(config, packaged_limit());
  EXPECT_LE(budget.needed(), budget.limit);
  EXPECT_EQ(descriptor_trouble(config, budget), "");
}

// A table that grows later stops the threads.
TEST(DescriptorBudget, HasItsRoomBeforeItIsNeeded) {
  const auto table_size = [] {
    std::ifstream status("/proc/self/status");
    const std::string key = "FDSize:";
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(key, 0) == 0) return std::stoull(line.substr(key.size()));
    }
    return 0ULL;
  };
  DescriptorBudget budget;
  budget.limit = descriptor_limit();
  budget.rest = 2 * table_size();
  make_room_for_descriptors(budget);
  const std::uint64_t most = budget.limit > 0 ? std::min(budget.limit, budget.rest) : budget.rest;
  EXPECT_GE(table_size(), most);
}

TEST(DescriptorBudget, GrowsWithWhatTheSettingsAllow) {
  Config config;
  constexpr std::uint64_t kLimit = 1024;
  const std::uint64_t before = descriptor_budget(config, kLimit).needed();
  config.lanes = 4;
  const std::uint64_t with_lanes = descriptor_budget(config, kLimit).needed();
  EXPECT_GT(with_lanes, before);
  config.max_clients = 4096;
  const std::uint64_t with_clients = descriptor_budget(config, kLimit).needed();
  EXPECT_GT(with_clients, with_lanes);
  config.max_links_per_user *= 2;
  EXPECT_GT(descriptor_budget(config, kLimit).needed(), with_clients);
}

TEST(DescriptorBudget, TheTroubleNamesTheNumbersAndTheRemedy) {
  const Config config;
  const DescriptorBudget budget = descriptor_budget(config, 1024);
  const std::string text = descriptor_trouble(config, budget);
  for (const std::string& part :
       {std::string("may have 1024"), std::to_string(budget.needed()),
        std::string("max_clients = 256"), std::string("max_links_per_user = 4096"),
        std::string("LimitNOFILE=")}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(DescriptorBudget, OnlyWhoHasSetNumbersAsksForThem) {
  EXPECT_NE(descriptor_trouble({}, descriptor_budget({}, 20'000)), "");
  EXPECT_FALSE(asks_for_descriptors({}));
  const auto asks = [](auto field) {
    Config config;
    config.*field *= 2;
    return asks_for_descriptors(config);
  };
  EXPECT_TRUE(asks(&Config::max_clients));
  EXPECT_TRUE(asks(&Config::max_clients_per_user));
  EXPECT_TRUE(asks(&Config::max_links_per_user));
  EXPECT_TRUE(asks(&Config::lanes));
}

TEST(DescriptorBudget, IsFullBeforeTheLastOnesAreTaken) {
  const DescriptorBudget budget = descriptor_budget({}, 1024);
  const std::uint64_t last = 1024 - budget.reserve() - budget.per_client;
  EXPECT_FALSE(budget.is_full(last));
  EXPECT_TRUE(budget.is_full(last + 1));
  EXPECT_GT(budget.reserve(), 100u);
  // Of few there is still something for clients.
  EXPECT_FALSE(descriptor_budget({}, 64).is_full(20));
  EXPECT_FALSE(DescriptorBudget{}.is_full(1'000'000));
}

}  // namespace
}  // namespace tern::daemon
