// The example trains on real data through real daemons, and what protects the links between them
// changes not a bit of what it learns.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/cluster.h"
#include "tests/e2e/peer_proofs.h"

namespace tern::e2e {
namespace {

constexpr int kSteps = 120;

class Training : public ::testing::TestWithParam<std::string> {
 protected:
  // Ranks on each of two nodes; the report of each, or null where a rank failed.
  static std::vector<nlohmann::json> train(Cluster& cluster, const std::string& recipe,
                                           const Options& more = {}, int ranks_of_node = 2) {
    std::vector<Process> processes;
    std::vector<nlohmann::json> reports;
    const int size = ranks_of_node * static_cast<int>(cluster.size());
    const auto report_of = [&](int rank) {
      return cluster.folder() + "/report" + std::to_string(rank) + ".json";
    };
    for (int rank = 0; rank < size; ++rank) {
      const DaemonProcess& daemon = cluster[static_cast<std::size_t>(rank / ranks_of_node)];
      Options options{"--rank",          std::to_string(rank),
                      "--size",          std::to_string(size),
                      "--group-id-file", cluster.folder() + "/group",
                      "--socket",        daemon.socket(),
                      "--recipe",        recipe,
                      "--steps",         std::to_string(kSteps),
                      "--warm-up",       "20",
                      "--result",        report_of(rank)};
      options.insert(options.end(), more.begin(), more.end());
      processes.emplace_back(TERN_TRAIN_MNIST, options, daemon.folder() + "/ranks.log");
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto exit =
          processes[static_cast<std::size_t>(rank)].wait_exit(std::chrono::minutes(5));
      EXPECT_TRUE(exit && exit->status == 0)
          << "rank " << rank << ": "
          << tail_of(cluster[static_cast<std::size_t>(rank / ranks_of_node)].folder() +
                     "/ranks.log");
      std::ifstream file(report_of(rank));
      reports.push_back(nlohmann::json::parse(file, nullptr, false));
    }
    return reports;
  }

  PeerProofs proofs;
};

TEST_P(Training, LearnsTheSameInPlaintextByCertificatesAndByAKey) {
  const std::vector<std::vector<Options>> protections{
      {{"--peer-security", "plaintext"}, {"--peer-security", "plaintext"}},
      {proofs.certified("one", "127.0.0.1"), proofs.certified("one", "127.0.0.1")},
      {proofs.keyed("key"), proofs.keyed("key")}};
  nlohmann::json plaintext;
  for (const auto& options : protections) {
    SCOPED_TRACE(options[0][1]);
    Cluster cluster(2, {}, options);
    ASSERT_TRUE(cluster.running());
    ASSERT_EQ(cluster[0].ask("status")["peer_security"], options[0][1]);
    const std::vector<nlohmann::json> reports = train(cluster, GetParam());
    for (const nlohmann::json& report : reports) {
      ASSERT_TRUE(report.is_object());
      EXPECT_TRUE(report["weights_agree"].get<bool>());
      EXPECT_GT(report["wire_bytes_per_step"].get<double>(), 0);
    }
    EXPECT_GT(reports[0]["test_accuracy"].get<double>(), 0.85);
    if (plaintext.is_null()) plaintext = reports[0];
    EXPECT_EQ(reports[0]["weights_checksum"], plaintext["weights_checksum"]);
    EXPECT_EQ(reports[0]["last_loss"], plaintext["last_loss"]);
  }
}

// Raw, a server that any rank or every rank is makes of the same gradients the same model, but for
// the order in which an owner adds them.
TEST_P(Training, LearnsWithAServerOnTheRanks) {
  for (const Options& more : {Options{"--server"}, Options{"--server", "--server-rank", "1"}}) {
    SCOPED_TRACE(more.size());
    Cluster cluster(2);
    ASSERT_TRUE(cluster.running());
    const std::vector<nlohmann::json> reports = train(cluster, GetParam(), more);
    double sent = 0, raw = 0;
    for (const nlohmann::json& report : reports) {
      ASSERT_TRUE(report.is_object());
      EXPECT_TRUE(report["weights_agree"].get<bool>());
      sent += report["wire_bytes_per_step"].get<double>();
      raw += report["raw_bytes_per_step"].get<double>();
    }
    EXPECT_GT(reports[0]["test_accuracy"].get<double>(), 0.85);
    EXPECT_TRUE(GetParam() == "raw" || sent < raw / 10) << sent << " of " << raw;
  }
}

// Whoever encodes, the ranks or the daemons, the model has the same bits.
TEST_P(Training, LearnsTheSameWithBlocksOfTheRanks) {
  nlohmann::json elements;
  for (const Options& more : {Options{}, Options{"--client-blocks"}}) {
    Cluster cluster(2);
    ASSERT_TRUE(cluster.running());
    const std::vector<nlohmann::json> reports = train(cluster, GetParam(), more, 1);
    for (const nlohmann::json& report : reports) {
      ASSERT_TRUE(report.is_object());
      EXPECT_TRUE(report["weights_agree"].get<bool>());
    }
    if (more.empty()) {
      elements = reports[0];
      continue;
    }
    EXPECT_TRUE(reports[0]["client_blocks"].get<bool>());
    EXPECT_EQ(reports[0]["weights_checksum"], elements["weights_checksum"]);
    EXPECT_EQ(reports[0]["last_loss"], elements["last_loss"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Training, ::testing::Values("raw", "3lc:s=1"),
                         [](const auto& name) {
                           return std::string(name.param == "raw" ? "Raw" : "Threelc");
                         });

}  // namespace
}  // namespace tern::e2e
