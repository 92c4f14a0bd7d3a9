// Mistakes and malice in operations of every kind: what the ranks are told, by a sentence, and that
// the group goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/beside_a_job.h"
#include "tests/e2e/hostile_client.h"

namespace tern::e2e {
namespace bad_kinds_test {
namespace {

using shm::OpKind;
using ::testing::HasSubstr;

// ---- Entries that the library would not write ---------------------------------------------------

class BadEntriesOfKinds : public BesideAJob {};

// Counts of a group of one rank, in the client's arena.
void give_counts(HostileClient& client, shm::SubmitEntry& entry,
                 const std::vector<std::uint64_t>& counts) {
  entry.flags = shm::kEntryHasCounts;
  entry.counts_offset = 8192;
  std::memcpy(client.segment().arena().data() + entry.counts_offset, counts.data(),
              counts.size() * sizeof(counts[0]));
}

TEST_F(BadEntriesOfKinds, AreRefusedWithASentence) {
  work_meanwhile();
  HostileClient client(cluster[0].socket());
  ASSERT_TRUE(client.hello());
  const std::uint64_t group = client.join_alone();
  ASSERT_NE(group, 0u);
  struct Case {
    OpKind kind;
    std::function<void(shm::SubmitEntry&)> change;
    const char* says;
    Errc code = Errc::invalid_argument;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const auto counts = [&](std::vector<std::uint64_t> of) {
    return [&client, of](auto& entry) { give_counts(client, entry, of); };
  };
  const auto pairs = [&](std::vector<std::uint64_t> of) {
    return [&client, of](auto& entry) {
      give_counts(client, entry, of);
      entry.count = 0;
    };
  };
  const auto prescale = [](auto& entry) {
    const float two = 2;
    std::memcpy(&entry.prescale_bits, &two, sizeof two);
  };
  const auto memory = [](auto& entry) { std::memcpy(entry.recipe, "3lc:s=1", 8); };
  constexpr const char* kNoMemory =
      "the operation takes no tensor that could have the recipe's memory; write none(...)";
  constexpr const char* kMore = "the counts add up to more than count";
  constexpr const char* kLess = "the counts add up to less than count";
  constexpr const char* kNoPrescale = "prescale is for reductions only";
  const std::vector<Case> cases{
      {OpKind::reduce_scatter, counts({17}), kMore},
      {OpKind::all_gather, counts({kHuge}), kMore},
      {OpKind::gather, counts({15}), kLess},
      {OpKind::scatter, counts({0}), kLess},
      {OpKind::all_reduce, counts({16}), "the operation takes no counts"},
      {OpKind::reduce, counts({16}), "the operation takes no counts"},
      {OpKind::send, counts({16}), "the operation takes no counts"},
      {OpKind::all_to_all, counts({16, 16}), "with counts for each rank, count must be 0"},
      {OpKind::all_to_all, pairs({kHuge, 16}), "the counts add up to too many elements"},
      {OpKind::all_to_all, pairs({16, kHuge / 2}), "the counts add up to too many elements"},
      {OpKind::all_gather,
       [](auto& entry) {
         entry.flags = shm::kEntryHasCounts;
         entry.counts_offset = (1 << 20) - 4;
       },
       "the counts are not inside the client's arena"},
      {OpKind::scatter,
       [](auto& entry) {
         entry.flags = shm::kEntryHasCounts;
         entry.counts_offset = kHuge - 7;
       },
       "the counts are not inside the client's arena"},
      {OpKind::gather, [](auto& entry) { entry.count = kHuge; }, "count is too large"},
      {OpKind::all_to_all, [](auto& entry) { entry.count = std::uint64_t{1} << 41; },
       "count is too large"},
      {OpKind::recv, [](auto& entry) { entry.count = 1 << 20; },
       "the tensor is not inside the client's arena"},
      {OpKind::reduce, [](auto& entry) { entry.root = 1; }, "root must be 0..size-1"},
      {OpKind::gather, [](auto& entry) { entry.root = 1; }, "root must be 0..size-1"},
      {OpKind::scatter, [](auto& entry) { entry.root = 77; }, "root must be 0..size-1"},
      {OpKind::send, [](auto& entry) { entry.root = 1; }, "the peer of a send must be 0..size-1"},
      {OpKind::send, [](auto& entry) { entry.root = shm::kAnySource; },
       "the peer of a send must be 0..size-1"},
      {OpKind::recv, [](auto& entry) { entry.root = 1; },
       "the peer of a recv must be 0..size-1, or any source"},
      {OpKind::send, [](auto& entry) { entry.sequence = std::uint64_t{1} << 32; },
       "a tag has 32 bits"},
      {OpKind::recv, [](auto& entry) { entry.sequence = kHuge; }, "a tag has 32 bits"},
      {OpKind::send, memory, kNoMemory, Errc::bad_recipe},
      {OpKind::recv, memory, kNoMemory, Errc::bad_recipe},
      {OpKind::all_to_all, memory, kNoMemory, Errc::bad_recipe},
      {OpKind::broadcast, prescale, kNoPrescale},
      {OpKind::all_gather, prescale, kNoPrescale},
      {OpKind::gather, prescale, kNoPrescale},
      {OpKind::scatter, prescale, kNoPrescale},
      {OpKind::all_to_all, prescale, kNoPrescale},
      {OpKind::send, prescale, kNoPrescale},
      {OpKind::recv, prescale, kNoPrescale},
      {OpKind::all_to_all, [](auto& entry) { entry.tensor = 9; }, "the operation takes no tensor"},
      {OpKind::send, [](auto& entry) { entry.tensor = 9; }, "the operation takes no tensor"},
      {static_cast<OpKind>(16), [](auto&) {}, "unknown kind of operation"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(one.kind) << ": " << one.says);
    auto entry = HostileClient::good_entry(group, 0);
    entry.kind = static_cast<std::uint16_t>(one.kind);
    one.change(entry);
    ASSERT_TRUE(client.submit(entry));
    const auto ended = client.completion();
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->status, static_cast<std::int32_t>(one.code)) << ended->detail;
    EXPECT_STREQ(ended->detail, one.says);
  }
  ASSERT_TRUE(client.submit(HostileClient::good_entry(group, 0)));
  const auto good_one = client.completion();
  ASSERT_TRUE(good_one.has_value());
  EXPECT_EQ(good_one->status, 0) << good_one->detail;
}

// ---- Ranks that do not agree --------------------------------------------------------------------

struct Ending {
  tern_status status = TERN_OK;
  std::string text;
};

using Submit = tern_status (*)(tern_group*, const tern_op*, tern_ticket*);

class BadKinds : public testing::Test {
 protected:
  static constexpr std::size_t kRanks = 3;  // two on the first node

  BadKinds() : cluster_(2, {"--max-ops-in-flight", "16"}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.running());
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
      const std::string path = cluster_[rank / 2].socket();
      options.socket_path = path.c_str();
      options.arena_bytes = 8 << 20;
      clients_.emplace_back(options);
    }
    const tern_group_id id = clients_[0].mint();
    std::vector<std::thread> threads;
    groups_.resize(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        groups_[rank].emplace(clients_[rank].join(id, static_cast<std::int32_t>(rank), kRanks));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // The group goes on, and nobody else has noticed.
  void TearDown() override {
    std::vector<std::int32_t> values(kRanks, 5);
    std::vector<tern::Ticket> tickets;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (!groups_[rank]) return;  // it has left
      tickets.push_back(groups_[rank]->all_reduce(std::span(&values[rank], 1)));
    }
    for (tern::Ticket& ticket : tickets) ticket.wait();
    for (const std::int32_t value : values) EXPECT_EQ(value, 15);
  }

  static Ending ending_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const tern::Failure& failure) {
      return {failure.status(), failure.what()};
    }
    return {};
  }

  // Integers of enough room for all.
  tern_op op_of(std::size_t rank, std::uint64_t count) {
    in_.resize(kRanks, std::vector<std::int32_t>(200'000));
    out_.resize(kRanks, std::vector<std::int32_t>(200'000));
    tern_op op = TERN_OP_INIT;
    op.dtype = TERN_I32;
    op.input = in_[rank].data();
    op.output = out_[rank].data();
    op.count = count;
    return op;
  }

  // All ranks submit; by rank how it ends.
  std::vector<Ending> all_submit(const std::function<Submit(std::size_t, tern_op&)>& say) {
    std::vector<tern_ticket> tickets(kRanks);
    std::vector<Ending> endings(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      tern_op op = op_of(rank, 9);
      const Submit submit = say(rank, op);
      endings[rank] = ending_of(
          [&] { tern::throw_if_failed(submit(groups_[rank]->get(), &op, &tickets[rank])); });
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (tickets[rank] == 0) continue;
      endings[rank] = ending_of(
          [&] { tern::throw_if_failed(tern_wait(clients_[rank].get(), tickets[rank], 30'000)); });
    }
    return endings;
  }
  void expect_all_hear(const std::vector<Ending>& endings, tern_status status,
                       const std::vector<std::string>& parts) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(endings[rank].status, status) << "rank " << rank << ": " << endings[rank].text;
      for (const std::string& part : parts) {
        EXPECT_THAT(endings[rank].text, HasSubstr(part)) << "rank " << rank;
      }
    }
  }

  Cluster cluster_;
  std::vector<tern::Client> clients_;
  std::vector<std::optional<tern::Group>> groups_;
  std::vector<std::vector<std::int32_t>> in_, out_;
};

TEST_F(BadKinds, CountsThatDisagreeNameARankThatDiffers) {
  const std::vector<std::uint64_t> counts{2, 3, 4}, others{4, 3, 2};
  for (const Submit submit : {tern_reduce_scatter, tern_all_gather, tern_gather, tern_scatter}) {
    for (const std::size_t odd :
         {std::size_t{1}, std::size_t{2}}) {  // of the same node, of another
      const auto endings = all_submit([&](std::size_t rank, tern_op& op) {
        op.counts = rank == odd ? others.data() : counts.data();
        return submit;
      });
      expect_all_hear(endings, TERN_ERR_MISMATCH, {"rank " + std::to_string(odd), "counts"});
    }
  }
}

// Between nodes the counts of all their ranks are compared at once, so that the node is named.
TEST_F(BadKinds, CountsForEachRankThatDisagreeAreAMismatchThatNamesARank) {
  const std::vector<std::uint64_t> threes{3, 3, 3};
  const auto endings_with = [&](const std::vector<std::uint64_t>& of_rank_1) {
    return all_submit([&](std::size_t rank, tern_op& op) -> Submit {
      op.count = 0;
      op.counts = rank == 1 ? of_rank_1.data() : threes.data();
      op.receive_counts = threes.data();
      return tern_all_to_all;
    });
  };
  expect_all_hear(endings_with({5, 3, 3}), TERN_ERR_MISMATCH,
                  {"rank 1 sends 5 elements to rank 0, which expects 3"});
  expect_all_hear(endings_with({3, 3, 5}), TERN_ERR_MISMATCH,
                  {"rank 0, or another of its node, sends other counts to the node of rank 2"});
}

TEST_F(BadKinds, CountsThatOverflowAreRefusedBeforeAnybodyHears) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::vector<std::uint64_t> huge{kHuge, 5, 5};
  for (const Submit submit : {tern_reduce_scatter, tern_all_gather, tern_gather, tern_scatter}) {
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{9}}) {
      const auto endings = all_submit([&](std::size_t, tern_op& op) {
        op.counts = huge.data();
        op.count = count;
        return submit;
      });
      expect_all_hear(endings, TERN_ERR_INVALID_ARGUMENT, {"the counts add up to"});
    }
  }
  const auto endings = all_submit([&](std::size_t, tern_op& op) -> Submit {
    op.count = 0;
    op.counts = op.receive_counts = huge.data();
    return tern_all_to_all;
  });
  expect_all_hear(endings, TERN_ERR_INVALID_ARGUMENT, {"the counts add up to too many elements"});
}

TEST_F(BadKinds, AnotherKindOrRootIsAMismatchThatSaysWhoSaidWhat) {
  expect_all_hear(all_submit([&](std::size_t rank, tern_op& op) -> Submit {
                    if (rank == 2) return tern_all_gather;
                    op.root = 1;
                    return tern_gather;
                  }),
                  TERN_ERR_MISMATCH, {"gather 9 i32", "rank 2 says all_gather 9 i32"});
  expect_all_hear(all_submit([&](std::size_t rank, tern_op& op) -> Submit {
                    op.root = rank == 1 ? 2 : 0;
                    return tern_reduce;
                  }),
                  TERN_ERR_MISMATCH, {"rank 1 says reduce 9 i32", "to 2"});
}

TEST_F(BadKinds, PrescaleOnAMoveIsRefusedWhereItIsSaid) {
  for (const Submit submit : {tern_broadcast, tern_all_gather, tern_gather, tern_scatter,
                              tern_all_to_all, tern_send, tern_recv}) {
    const auto endings = all_submit([&](std::size_t, tern_op& op) {
      op.dtype = TERN_F32;
      op.prescale = 0.5f;
      return submit;
    });
    expect_all_hear(endings, TERN_ERR_INVALID_ARGUMENT, {"prescale is for reductions only"});
  }
}

// A gradient whose recipe has a memory, on all ranks.
class BadUseOfMemory : public BadKinds {
 protected:
  static constexpr std::uint64_t kCount = 120'000;

  std::vector<Ending> use(Submit submit, const std::vector<std::uint64_t>& counts = {}) {
    return all_submit([&, submit](std::size_t rank, tern_op& op) {
      op.tensor = tensors_[rank].get();
      op.count = 0;
      op.counts = counts.empty() ? nullptr : counts.data();
      op.input = values_[rank].data();
      op.output = outputs_[rank].data();
      return submit;
    });
  }
  void declare(const std::string& name) {
    tensors_.clear();
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      tensors_.push_back(groups_[rank]->declare<float>(name, kCount, TERN_GRADIENT, "3lc:s=1"));
    }
  }
  void expect_refused(Submit submit, const std::vector<std::uint64_t>& counts = {}) {
    expect_all_hear(use(submit, counts), TERN_ERR_BAD_RECIPE,
                    {"the tensor's residual is of another kind of operation, or of other counts; "
                     "declare a tensor for each"});
  }

  std::vector<std::vector<float>> values_{kRanks, std::vector<float>(kCount, 0.25f)};
  std::vector<std::vector<float>> outputs_ = values_;
  std::vector<tern::Tensor> tensors_;
};

TEST_F(BadUseOfMemory, AnotherKindIsRefusedOnAllRanks) {
  declare("t");
  expect_all_hear(use(tern_all_reduce), TERN_OK, {});
  for (const Submit other : {tern_reduce, tern_reduce_scatter, tern_all_gather})
    expect_refused(other);
  expect_all_hear(use(tern_all_reduce), TERN_OK, {});
}

// Of the first operation one node only sends, and the other only receives.
TEST_F(BadUseOfMemory, AlsoWhereANodeHasNoShareOfTheFirst) {
  const std::vector<std::uint64_t> of_first{kCount, 0, 0}, of_last{0, 0, kCount};
  struct First {
    Submit submit;
    std::vector<std::uint64_t> counts;
  };
  int number = 0;
  for (const First& first : {First{tern_reduce, {}}, First{tern_reduce_scatter, of_first},
                             First{tern_reduce_scatter, of_last}, First{tern_all_gather, of_first},
                             First{tern_all_gather, of_last}}) {
    SCOPED_TRACE(number);
    declare("t" + std::to_string(number++));
    expect_all_hear(use(first.submit, first.counts), TERN_OK, {});
    expect_refused(tern_all_reduce);
    if (first.submit != tern_reduce) expect_refused(first.submit);
    expect_refused(first.submit == tern_all_gather ? tern_reduce : tern_all_gather);
    expect_all_hear(use(first.submit, first.counts), TERN_OK, {});
  }
}

// ---- From rank to rank --------------------------------------------------------------------------

// Small ones too, whose elements have come with the offer; and within a node.
TEST_F(BadKinds, ARecvThatIsTooSmallFailsOnBothSidesWithBothSizes) {
  for (const std::int32_t receiver : {1, 2}) {
    for (const std::uint64_t count : {std::uint64_t{10}, std::uint64_t{100'000}}) {
      const auto to = static_cast<std::size_t>(receiver);
      tern::Ticket sent = groups_[0]->send(
          std::span<const std::int32_t>(static_cast<const std::int32_t*>(op_of(0, 0).input), count),
          receiver, 6);
      tern::Ticket received =
          groups_[to]->recv(std::span(out_[to].data(), count - 1), TERN_ANY_SOURCE, 6);
      const std::string sizes = "rank 0 sends " + std::to_string(count) + " elements to rank " +
                                std::to_string(receiver) + " with tag 6, which has room for " +
                                std::to_string(count - 1);
      for (tern::Ticket* ticket : {&sent, &received}) {
        const Ending ended = ending_of([&] { ticket->wait(); });
        EXPECT_EQ(ended.status, TERN_ERR_MISMATCH);
        EXPECT_THAT(ended.text, HasSubstr(sizes));
      }
    }
  }
}

TEST_F(BadKinds, PeersOutOfRangeAreRefused) {
  for (const std::int32_t peer : {-2, 3, 1'000'000}) {
    const auto endings = all_submit([&](std::size_t rank, tern_op& op) -> Submit {
      op.peer = peer;
      return rank == 0 ? tern_send : tern_recv;
    });
    expect_all_hear(endings, TERN_ERR_INVALID_ARGUMENT, {"must be 0..size-1"});
  }
  const auto endings = all_submit([&](std::size_t, tern_op& op) -> Submit {
    op.peer = TERN_ANY_SOURCE;
    return tern_send;
  });
  expect_all_hear(endings, TERN_ERR_INVALID_ARGUMENT, {"the peer of a send must be 0..size-1"});
}

TEST_F(BadKinds, ACancelOfWhatHasMetNobodyEndsItHereAlone) {
  const tern_op memory = op_of(0, 0);
  const auto* const from = static_cast<const std::int32_t*>(memory.input);
  std::vector<tern::Ticket> lonely;
  lonely.push_back(groups_[0]->send(std::span(from, std::size_t{10}), 2, 1));
  lonely.push_back(groups_[0]->send(std::span(from, std::size_t{100'000}), 2, 1));
  lonely.push_back(groups_[0]->send(std::span(from, std::size_t{10}), 1, 1));
  lonely.push_back(groups_[0]->recv(std::span(out_[0].data(), 10), 2, 1));
  lonely.push_back(groups_[0]->recv(std::span(out_[0].data() + 10, 10), TERN_ANY_SOURCE, 2));
  for (tern::Ticket& ticket : lonely) ticket.cancel();
  for (tern::Ticket& ticket : lonely) {
    const Ending ended = ending_of([&] { ticket.wait(); });
    EXPECT_EQ(ended.status, TERN_ERR_CANCELLED);
    EXPECT_THAT(ended.text, HasSubstr("cancelled by rank 0"));
  }
  // Those that come after them meet each other.
  in_[0][0] = 77;
  tern::Ticket sent = groups_[0]->send(std::span(from, std::size_t{1}), 2, 1);
  groups_[2]->recv(std::span(out_[2].data(), 1), 0, 1).wait();
  sent.wait();
  EXPECT_EQ(out_[2][0], 77);
}

TEST_F(BadKinds, WhatWaitsForARankThatLeavesEndsAndNamesIt) {
  const tern_op memory = op_of(0, 0);
  const auto* const from = static_cast<const std::int32_t*>(memory.input);
  std::vector<tern::Ticket> waiting;
  waiting.push_back(groups_[0]->send(std::span(from, std::size_t{10}), 2, 1));
  waiting.push_back(groups_[0]->send(std::span(from, std::size_t{100'000}), 2, 2));
  waiting.push_back(groups_[1]->recv(std::span(out_[1].data(), 10), 2, 3));
  groups_[2].reset();
  for (tern::Ticket& ticket : waiting) {
    const Ending ended = ending_of([&] { ticket.wait(); });
    EXPECT_EQ(ended.status, TERN_ERR_GROUP_LEFT) << ended.text;
    EXPECT_THAT(ended.text, HasSubstr("rank 2 has left the group"));
  }
}

// What this rank leaves unmatched is gone with it, and what others have for it ends.
TEST_F(BadKinds, TheRanksOwnUnmatchedSendsEndWithIt) {
  const tern_op memory = op_of(0, 0);
  const auto* const from = static_cast<const std::int32_t*>(memory.input);
  tern_op op = memory;
  op.count = 10;
  op.peer = 2;
  tern_ticket mine = 0;
  ASSERT_EQ(tern_send(groups_[0]->get(), &op, &mine), TERN_OK);
  tern::Ticket other = groups_[1]->send(std::span(from, std::size_t{10}), 0, 4);
  groups_[0].reset();
  EXPECT_EQ(tern_wait(clients_[0].get(), mine, 30'000), TERN_ERR_GROUP_LEFT);
  const Ending ended = ending_of([&] { other.wait(); });
  EXPECT_EQ(ended.status, TERN_ERR_GROUP_LEFT);
  EXPECT_THAT(ended.text, HasSubstr("rank 0 has left the group"));
}

// ---- Batches ------------------------------------------------------------------------------------

TEST_F(BadKinds, ABatchWithOneBadOperationIsRefusedAndSaysWhich) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    tern_op good = op_of(rank, 9), bad = good;
    bad.output = out_[rank].data() + 100;
    bad.root = 7;
    tern::Batch batch;
    batch.add(TERN_OP_ALL_REDUCE, good).add(TERN_OP_GATHER, bad).add_barrier();
    const Ending ended = ending_of([&] { groups_[rank]->submit(batch).wait(); });
    EXPECT_EQ(ended.status, TERN_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(ended.text, HasSubstr("operation 1 of the batch (gather)"));
    EXPECT_THAT(ended.text, HasSubstr("root must be 0..size-1"));
  }
}

TEST_F(BadKinds, ABatchThatIsTooLargeNamesTheLimit) {
  tern::Batch batch;
  for (int i = 0; i < 17; ++i) batch.add_barrier();
  const Ending ended = ending_of([&] { groups_[0]->submit(batch).wait(); });
  EXPECT_EQ(ended.status, TERN_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(ended.text, HasSubstr("a batch of 17 operations is too large: the group's "
                                    "max_ops_in_flight is 16"));
}

}  // namespace
}  // namespace bad_kinds_test
}  // namespace tern::e2e
