#pragma once

// Daemons and ranks of one layout, which the tests of a suite share: each rank is a client in the
// test's own process, and has a thread while it works.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {

struct NodeLayout {
  const char* name;
  std::vector<int> ranks_per_node;
  std::vector<std::string> options;
  bool encrypted = false;
};

struct LayoutRank {
  LayoutRank(const DaemonProcess& daemon, std::uint32_t number) : rank(number) {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    const std::string socket = daemon.socket();
    options.socket_path = socket.c_str();
    options.arena_bytes = 64 << 20;
    client.emplace(options);
  }

  std::uint32_t rank;
  std::optional<tern::Client> client;
  std::optional<tern::Group> group;
};

class RunningLayout {
 public:
  // Small chunks, so that small shares are cut.
  explicit RunningLayout(const NodeLayout& layout)
      : cluster_(static_cast<int>(layout.ranks_per_node.size()), options_of(layout)) {
    for (std::size_t node = 0; cluster_.running() && node < cluster_.size(); ++node) {
      for (int i = 0; i < layout.ranks_per_node[node]; ++i) {
        ranks_.push_back(std::make_unique<LayoutRank>(cluster_[node],
                                                      static_cast<std::uint32_t>(ranks_.size())));
      }
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  // Empty, or what is wrong.
  std::string join() {
    if (!cluster_.running()) return "a daemon does not run";
    const tern_group_id id = ranks_[0]->client->mint();
    return on_all([&](LayoutRank& at) {
      at.group.emplace(at.client->join(id, static_cast<std::int32_t>(at.rank),
                                       static_cast<std::int32_t>(ranks_.size())));
      return std::string();
    });
  }
  // All ranks at once, each in a thread. Empty, or what one of them says.
  std::string on_all(const std::function<std::string(LayoutRank&)>& work) {
    std::vector<std::string> said(ranks_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          said[rank] = work(*ranks_[rank]);
        } catch (const tern::Failure& failure) {
          said[rank] = failure.what();
        }
        if (!said[rank].empty()) said[rank] = "rank " + std::to_string(rank) + ": " + said[rank];
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : said) {
      if (!text.empty()) return text;
    }
    return "";
  }

 private:
  std::vector<std::string> options_of(const NodeLayout& layout) const {
    std::vector<std::string> options{"--chunk-bytes",   "16KiB", "--send-slabs",   "16",
                                     "--receive-slabs", "16",    "--result-slabs", "16"};
    options.insert(options.end(), layout.options.begin(), layout.options.end());
    if (layout.encrypted) {
      const std::string key = files_.path() + "/key";
      std::ofstream(key) << std::string(64, 'a') << "\n";
      std::filesystem::permissions(key, std::filesystem::perms::owner_read);
      options.insert(options.end(), {"--peer-security", "key", "--cluster-key-file", key});
    }
    return options;
  }

  TemporaryFolder files_;
  Cluster cluster_;
  std::vector<std::unique_ptr<LayoutRank>> ranks_;
};

// Each layout is a suite of its own, whose first test starts it.
class RanksOnNodes : public testing::TestWithParam<NodeLayout> {
 protected:
  static void TearDownTestSuite() { running().reset(); }
  void SetUp() override {
    if (running() == nullptr) {
      running() = std::make_unique<RunningLayout>(GetParam());
      said_ = running()->join();
    }
    ASSERT_EQ(said_, "");
  }
  RunningLayout& ranks() { return *running(); }

 private:
  static std::unique_ptr<RunningLayout>& running() {
    static std::unique_ptr<RunningLayout> layout;
    return layout;
  }
  static inline std::string said_;
};

}  // namespace tern::e2e
