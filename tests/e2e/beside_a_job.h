#pragma once

#include <gtest/gtest.h>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {

// Two nodes where two ranks of a well-behaved job work from the first line of a test to its last.
class BesideAJob : public ::testing::Test {
 protected:
  BesideAJob()
      : cluster(2, {"--lanes", "2", "--max-arena-bytes", "1GiB", "--handshake-timeout", "500ms"}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    good = Ranks(cluster, {1, 1}, "good");
    ASSERT_EQ(good.join(), "");
    before = cluster[0].holdings();
  }

  void work_meanwhile() { good.tell_all("stream group=g ops=400 tensors=3 large=60000"); }

  void TearDown() override {
    if (HasFatalFailure()) return;
    EXPECT_EQ(disagreement(good.replies()), "");
    // What the bad ones had is given back.
    EXPECT_TRUE(eventually([&] { return cluster[0].holdings() <= before; }))
        << cluster[0].holdings().descriptors << " descriptors, before " << before.descriptors;
    EXPECT_TRUE(cluster[1].running());
  }

  Cluster cluster;
  Ranks good;
  Holdings before;
};

}  // namespace tern::e2e
