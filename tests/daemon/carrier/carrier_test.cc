// Builds with libibverbs and builds without it: what the daemon says where there is no RDMA.

#include "daemon/carrier/carrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Also on a machine that has devices.
Config without_a_device(const std::string& transport) {
  Config config;
  config.transport = transport;
  config.rdma_devices = "no_device_has_this_name";
  return config;
}

TEST(Carrier, AutoUsesTcpAndSaysWhyNotRdma) {
  const auto carriers = probe_carriers(without_a_device("auto"));
  ASSERT_TRUE(carriers) << carriers.error().text;
  EXPECT_THAT(*carriers, StartsWith("TCP: "));
  EXPECT_THAT(*carriers, HasSubstr("RDMA"));
}

TEST(Carrier, RdmaThatIsInsistedOnIsAnError) {
  const auto carriers = probe_carriers(without_a_device("rdma"));
  ASSERT_FALSE(carriers);
  EXPECT_THAT(carriers.error().text, StartsWith("transport = \"rdma\": "));
#ifdef TERN_TESTS_WITHOUT_RDMA
  EXPECT_THAT(carriers.error().text, HasSubstr("this build has no RDMA"));
#else
  EXPECT_THAT(carriers.error().text, HasSubstr("no RDMA device"));
#endif
}

TEST(Carrier, TcpAsConfiguredNeedsNoReason) {
  const auto carriers = probe_carriers(without_a_device("tcp"));
  ASSERT_TRUE(carriers);
  EXPECT_EQ(*carriers, "TCP, as configured");
}

}  // namespace
}  // namespace tern::daemon
