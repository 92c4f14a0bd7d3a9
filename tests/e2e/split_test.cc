// Batches and splits through libtern and real daemons.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace split_test {
namespace {

class Splitting : public testing::Test {
 protected:
  struct Rank {
    std::optional<tern::Client> client;
    std::optional<tern::Group> group;
    std::int32_t number = 0;

    // What an all_reduce of the rank's number in the parent gives.
    std::int64_t sum_in(tern::Group& of) const {
      std::int64_t value = number;
      of.all_reduce(std::span(&value, 1)).wait();
      return value;
    }
  };

  // `more`: ranks of the group that the test brings itself, by `meet` on the first node.
  void start(const std::vector<int>& ranks_per_node, int more = 0,
             const std::function<void(const std::string& socket)>& meet = {}) {
    cluster_ = std::make_unique<Cluster>(static_cast<int>(ranks_per_node.size()));
    ASSERT_TRUE(cluster_->running());
    if (meet) meet((*cluster_)[0].socket());
    for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
      for (int i = 0; i < ranks_per_node[node]; ++i) {
        tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
        const std::string path = (*cluster_)[node].socket();
        options.socket_path = path.c_str();
        options.arena_bytes = 1 << 20;
        auto rank = std::make_unique<Rank>();
        rank->client.emplace(options);
        rank->number = static_cast<std::int32_t>(ranks_.size());
        ranks_.push_back(std::move(rank));
      }
    }
    const tern_group_id id = ranks_[0]->client->mint();
    if (more != 0) {
      ASSERT_EQ(::write(ids_[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    }
    const auto size = static_cast<std::int32_t>(ranks_.size()) + more;
    ASSERT_EQ(on_all([&](Rank& rank) {
                rank.group.emplace(rank.client->join(id, rank.number, size));
                return std::string();
              }),
              "");
  }

  // All ranks at once, each in a thread. Empty, or what one of them says.
  std::string on_all(const std::function<std::string(Rank&)>& work) {
    std::vector<std::string> said(ranks_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          said[i] = work(*ranks_[i]);
        } catch (const tern::Failure& failure) {
          said[i] = "rank " + std::to_string(i) + ": " + failure.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : said) {
      if (!text.empty()) return text;
    }
    return "";
  }

  static std::string expect_equal(std::int64_t is, std::int64_t should) {
    return is == should ? "" : std::to_string(is) + " is not " + std::to_string(should);
  }

  int ids_[2] = {-1, -1};  // a pipe for the group's id
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(Splitting, AMeshHasRowsAndColumns) {
  start({2, 2, 2});
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              constexpr std::int32_t kColumns = 3;
              const std::int32_t row = rank.number / kColumns, column = rank.number % kColumns;
              std::optional<tern::Group> in_row = rank.group->split(row, column);
              std::optional<tern::Group> in_column = rank.group->split(column, row);
              if (!in_row || !in_column) return "no child";
              if (in_row->info().size != 3 || in_row->info().rank != column) return "wrong row";
              if (in_column->info().size != 2 || in_column->info().rank != row) {
                return "wrong column";
              }
              for (int round = 0; round < 3; ++round) {
                if (rank.sum_in(*in_row) != row * 9 + 3) return "wrong sum of a row";
                if (rank.sum_in(*in_column) != 2 * column + 3) return "wrong sum of a column";
                if (rank.sum_in(*rank.group) != 15) return "wrong sum of all";
              }
              return "";
            }),
            "");
}

TEST_F(Splitting, ColoursMayBeUnevenAndNegativeAndKeysTurnTheOrder) {
  start({3, 2});
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              // Ranks 0, 2, 3 in reverse order; rank 1 alone; rank 4 in none.
              const std::int32_t colors[] = {7, 0, 7, 7, -3};
              std::optional<tern::Group> child =
                  rank.group->split(colors[rank.number], -rank.number);
              if (child.has_value() != (rank.number != 4)) return "a child of the wrong rank";
              if (!child) return "";
              const std::int32_t places[] = {2, 0, 1, 0};
              if (child->info().rank != places[rank.number]) return "the wrong place";
              return expect_equal(rank.sum_in(*child), rank.number == 1 ? 1 : 5);
            }),
            "");
}

TEST_F(Splitting, EqualKeysAreOrderedByRankAndAChildIsSplitAgain) {
  start({2, 2});
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              std::optional<tern::Group> child = rank.group->split(0);
              if (!child || child->info().rank != rank.number) return "the wrong order";
              std::optional<tern::Group> half = child->split(rank.number % 2);
              if (!half) return "no grandchild";
              child.reset();
              rank.group.reset();
              return expect_equal(rank.sum_in(*half), rank.number % 2 == 0 ? 2 : 4);
            }),
            "");
}

TEST_F(Splitting, AMissingRankIsNamedAndTheGroupGoesOn) {
  start({2, 2});
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              tern_split_options options = TERN_SPLIT_OPTIONS_INIT;
              options.timeout_ms = 300;
              if (rank.number == 2) return "";
              try {
                (void)rank.group->split(0, 0, options);
                return "it was split";
              } catch (const tern::Failure& failure) {
                const bool names =
                    std::string(failure.what()).find("waited for rank 2") != std::string::npos;
                return failure.status() == TERN_ERR_TIMEOUT && names ? "" : failure.what();
              }
            }),
            "");
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              std::optional<tern::Group> child = rank.group->split(rank.number / 2);
              return expect_equal(rank.sum_in(*child), rank.number < 2 ? 1 : 5);
            }),
            "")
      << "all ranks agree on how often the group was split";
}

// The rank of a process of its own: joins as the last of four, splits with colour 1, and waits.
[[noreturn]] void run_rank(const std::string& socket, int ids) {
  try {
    tern_group_id id = {};
    if (::read(ids, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) ::_exit(1);
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    options.socket_path = socket.c_str();
    options.arena_bytes = 1 << 20;
    tern::Client client(options);
    tern::Group group = client.join(id, 3, 4);
    const std::optional<tern::Group> child = group.split(1);
    for (;;) ::pause();
  } catch (const tern::Failure&) {
    ::_exit(1);
  }
}

TEST_F(Splitting, ADeathEndsTheGroupsOfTheDeadAlone) {
  pid_t dying = 0;
  ASSERT_EQ(::pipe(ids_), 0);
  start({2, 1}, 1, [&](const std::string& socket) {
    dying = ::fork();
    if (dying == 0) run_rank(socket, ids_[0]);
  });
  ASSERT_GT(dying, 0);
  std::vector<std::optional<tern::Group>> children(3);
  EXPECT_EQ(on_all([&](Rank& rank) {
              children[static_cast<std::size_t>(rank.number)] = rank.group->split(rank.number % 2);
              return std::string();
            }),
            "");
  ASSERT_EQ(::kill(dying, SIGKILL), 0);
  ASSERT_EQ(::waitpid(dying, nullptr, 0), dying);
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              tern::Group& child = *children[static_cast<std::size_t>(rank.number)];
              if (rank.number != 1) return expect_equal(rank.sum_in(child), 2);
              try {
                (void)rank.sum_in(child);
                return "the child of a dead rank lives";
              } catch (const tern::Failure& failure) {
                return failure.status() == TERN_ERR_RANK_LOST ? "" : failure.what();
              }
            }),
            "");
}

TEST_F(Splitting, ABatchMeetsSingleOperations) {
  start({2, 1});
  EXPECT_EQ(on_all([&](Rank& rank) -> std::string {
              std::vector<float> values(100, static_cast<float>(rank.number));
              tern::Batch batch;
              std::vector<tern::Ticket> tickets;
              for (float& value : values) {
                if (rank.number != 1) {
                  batch.add_all_reduce(std::span(&value, 1));
                } else {
                  tickets.push_back(rank.group->all_reduce(std::span(&value, 1)));
                }
              }
              if (rank.number != 1) tickets.push_back(rank.group->submit(batch));
              for (tern::Ticket& ticket : tickets) ticket.wait();
              return values == std::vector<float>(100, 3.0f) ? "" : "wrong sums";
            }),
            "");
}

}  // namespace
}  // namespace split_test
}  // namespace tern::e2e
