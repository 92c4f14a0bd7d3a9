// A log of the tuner's choices gives the same bits again, for each kind with one leg that may lose
// values.

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/choice_directories.h"
#include "tests/e2e/ranks_on_nodes.h"

namespace tern::e2e {
namespace replayed_kinds_test {

constexpr std::uint64_t kCount = 140'000;  // some chunks for each lane of each node
constexpr int kSteps = 40;

struct ReplayedKind {
  const char* name;
  tern::Ticket (tern::Group::*submit)(const tern_op& op);
};

class ReplayedKinds : public testing::TestWithParam<ReplayedKind> {
 protected:
  ReplayedKinds()
      : cluster_(2, {"--chunk-bytes", "64KiB", "--lanes", "2", "--state-ttl", "0s"},
                 logs_.options()) {}

  // The outputs of all steps, rank 0's first, of a group that is there for them.
  std::vector<std::vector<float>> steps(const std::string& recipe) {
    std::vector<std::unique_ptr<LayoutRank>> ranks;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ranks.push_back(std::make_unique<LayoutRank>(cluster_[rank], rank));
    }
    const tern_group_id id = ranks[0]->client->mint();
    auto other = std::async(std::launch::async, [&] { return steps_of(*ranks[1], 1, id, recipe); });
    auto outputs = steps_of(*ranks[0], 0, id, recipe);
    for (auto& output : other.get()) outputs.push_back(std::move(output));
    return outputs;
  }

  std::vector<std::vector<float>> steps_of(LayoutRank& at, int rank, const tern_group_id& id,
                                           const std::string& recipe) {
    tern::Group group = at.client->join(id, rank, 2);
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = "t";
    options.count = kCount;
    options.dtype = TERN_F32;
    options.role = TERN_GRADIENT;
    options.recipe = recipe.c_str();
    tern::Tensor tensor = group.declare(options);
    std::vector<std::vector<float>> outputs;
    std::mt19937 random(static_cast<std::uint32_t>(rank + 1));
    std::normal_distribution<float> values;
    std::vector<float> input(kCount), output(kCount);
    for (int step = 0; step < kSteps; ++step) {
      for (float& value : input) value = values(random);
      tern_op op = TERN_OP_INIT;
      op.tensor = tensor.get();
      op.dtype = TERN_F32;
      op.input = input.data();
      op.output = std::string(GetParam().name) == "reduce" && rank != 0 ? nullptr : output.data();
      op.count = kCount;
      (group.*GetParam().submit)(op).wait();
      outputs.push_back(output);
    }
    return outputs;
  }

  // Raw at first, and from use 5 on with loss.
  static std::string lossy_later() {
    std::string records;
    for (const char* lane : {"0", "1"}) {
      records.append("op t 0 ").append(lane).append(" 0 raw raw\n");
      records.append("op t ").append(std::to_string(kFirstLossy)).append(" ").append(lane);
      records.append(" 0 3lc:s=1 3lc:s=1\n");
    }
    return records;
  }

  static constexpr std::size_t kFirstLossy = 5;
  ChoiceDirectories logs_;
  Cluster cluster_;
};

// How much is lost the tuner decides; AreSentAsTheLogSays has loss for sure.
TEST_P(ReplayedKinds, GiveTheSameBitsAsWhenTheyWereChosen) {
  ASSERT_TRUE(cluster_.running());
  const auto first = steps("auto");
  // It is closed with the group, by a thread that writes files.
  ASSERT_TRUE(eventually([&] { return !logs_.only_log().empty(); }));
  EXPECT_TRUE(steps("replay:" + logs_.only_log()) == first);
}

TEST_P(ReplayedKinds, AreSentAsTheLogSays) {
  ASSERT_TRUE(cluster_.running());
  logs_.write("lossy", lossy_later());
  const auto exact = steps("raw"), first = steps("replay:lossy");
  EXPECT_TRUE(steps("replay:lossy") == first);
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(first[step] == exact[step], step < kFirstLossy) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(OneLeg, ReplayedKinds,
                         testing::Values(ReplayedKind{"reduce", &tern::Group::reduce},
                                         ReplayedKind{"reduce_scatter",
                                                      &tern::Group::reduce_scatter},
                                         ReplayedKind{"all_gather", &tern::Group::all_gather}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace replayed_kinds_test
}  // namespace tern::e2e
