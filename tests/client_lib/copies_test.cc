// Memory outside the arena: the op is submitted first, and its memory is copied while lanes work.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/copy_progress.h"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace copies_test {
namespace {

constexpr std::uint64_t kCount = 80'000;
constexpr std::uint64_t kBytes = kCount * sizeof(float);

FakeOptions with_progress() {
  FakeOptions options;
  options.progress = true;
  options.chunk_bytes = 16 << 10;
  return options;
}

shm::CopyProgress progress_of(shm::Segment& segment, const Seen& seen) {
  return {segment.arena().data() + seen.entry.progress_offset, {2, seen.entry.progress_records}};
}

class Copies : public ClientTest {
 protected:
  explicit Copies(FakeOptions options = with_progress()) : ClientTest(std::move(options)) {
    for (std::size_t i = 0; i < kCount; ++i) input[i] = static_cast<float>(i + 1);
  }

  tern_ticket submit(const float* from, float* to, std::uint64_t count = kCount) {
    const tern_op op = f32_op(from, to, count);
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK) << tern_error_detail();
    return ticket;
  }
  // Lane 0 delivers a piece of the op that is held.
  void deliver(std::uint32_t index, const shm::DeliveredRecord& piece) {
    daemon.with_held([&](shm::Segment& segment, const Seen& seen) {
      if (seen.lane != 0) return;
      std::byte* const arena = segment.arena().data();
      if (piece.offset <= kBytes && piece.bytes <= kBytes - piece.offset) {
        std::memmove(arena + seen.entry.output_offset + piece.offset,
                     arena + seen.entry.input_offset + piece.offset, piece.bytes);
      }
      progress_of(segment, seen).deliver(0, index, piece);
    });
  }
  std::size_t held() {
    std::size_t count = 0;
    daemon.with_held([&](shm::Segment&, const Seen&) { ++count; });
    return count;
  }

  std::vector<float> input = std::vector<float>(kCount);
  std::vector<float> output = std::vector<float>(kCount);
};

TEST_F(Copies, AllOfTheInputIsThereWhenTheSubmissionReturns) {
  const tern_ticket ticket = submit(input.data(), output.data());
  daemon.await_entries(2);
  int looked = 0;
  daemon.with_held([&](shm::Segment& segment, const Seen& seen) {
    ++looked;
    EXPECT_EQ(seen.entry.flags, shm::kEntryHasProgress);
    EXPECT_EQ(progress_of(segment, seen).input_bytes(), kBytes);
    EXPECT_TRUE(std::ranges::equal(segment.arena().subspan(seen.entry.input_offset, kBytes),
                                   std::as_bytes(std::span(input))));
  });
  EXPECT_EQ(looked, 2) << "one for each lane";
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(output, input);
}

TEST_F(Copies, WhatIsDeliveredIsTakenBeforeTheEnd) {
  const tern_ticket ticket = submit(input.data(), output.data());
  daemon.await_entries(2);
  ASSERT_EQ(held(), 2u);
  deliver(0, {4096, 8192});
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_EQ(output[1023], 0.0f);
  EXPECT_EQ(output[1024], 1025.0f);
  EXPECT_EQ(output[3071], 3072.0f);
  EXPECT_EQ(output[3072], 0.0f);
  // What it has taken is the program's.
  output[2000] = -1.0f;
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(output[2000], -1.0f);
  output[2000] = 2001.0f;
  EXPECT_EQ(output, input);
}

TEST_F(Copies, ListsThatMakeNoSenseChangeNothing) {
  const tern_ticket ticket = submit(input.data(), output.data());
  daemon.await_entries(2);
  ASSERT_EQ(held(), 2u);
  deliver(0, {kBytes - 4, 8});
  deliver(1, {~std::uint64_t{0} - 4, 8});
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(output, input);
}

TEST_F(Copies, MemoryInTheArenaHasNoProgress) {
  daemon.set_ops(Ops::complete);
  float* const inside = connection.allocate<float>(kCount);
  std::copy(input.begin(), input.end(), inside);
  EXPECT_EQ(tern_wait(client, submit(inside, inside), TERN_FOREVER), TERN_OK);
  EXPECT_EQ(daemon.seen()[0].entry.flags, 0);
  EXPECT_EQ(daemon.seen()[0].entry.progress_offset, 0u);
}

TEST_F(Copies, ShortOnesAreThereBeforeTheEntry) {
  EXPECT_EQ(tern_wait(client, submit(input.data(), output.data(), 1000), TERN_FOREVER), TERN_OK);
  EXPECT_EQ(daemon.seen()[0].entry.flags, 0);
}

TEST_F(Copies, AResultToTheArenaHasNoLists) {
  float* const inside = connection.allocate<float>(kCount);
  const tern_ticket ticket = submit(input.data(), inside);
  daemon.await_entries(2);
  EXPECT_EQ(daemon.seen()[0].entry.flags, shm::kEntryHasProgress);
  EXPECT_EQ(daemon.seen()[0].entry.progress_records, 0u);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_TRUE(std::ranges::equal(std::span(inside, kCount), input));
}

class CopiesByShares : public Copies {
 protected:
  CopiesByShares() : Copies(by_shares()) {}
  static FakeOptions by_shares() {
    FakeOptions options = with_progress();
    options.shares_down = true;
    return options;
  }
};

TEST_F(CopiesByShares, AReduceScatterSaysThatItsSharesComeDownwards) {
  const tern_op op = f32_op(input.data(), output.data(), kCount);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_reduce_scatter(group, &op, &ticket));
  daemon.await_entries(2);
  daemon.with_held([&](shm::Segment& segment, const Seen& seen) {
    EXPECT_EQ(seen.entry.flags, shm::kEntryHasProgress | shm::kEntrySharesDown);
    EXPECT_EQ(progress_of(segment, seen).input_bytes(), kBytes);
    EXPECT_TRUE(std::ranges::equal(segment.arena().subspan(seen.entry.input_offset, kBytes),
                                   std::as_bytes(std::span(input))));
  });
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
}

TEST_F(CopiesByShares, OtherKindsComeFromTheirBeginning) {
  const tern_ticket ticket = submit(input.data(), output.data());
  daemon.await_entries(2);
  EXPECT_EQ(daemon.seen()[0].entry.flags, shm::kEntryHasProgress);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
}

TEST_F(Copies, AReduceScatterComesFromItsBeginningToADaemonThatDoesNotKnowShares) {
  const tern_op op = f32_op(input.data(), output.data(), kCount);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_reduce_scatter(group, &op, &ticket));
  daemon.await_entries(2);
  EXPECT_EQ(daemon.seen()[0].entry.flags, shm::kEntryHasProgress);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
}

TEST_F(Copies, ABatchIsCopiedOpByOp) {
  const tern_op one = f32_op(input.data(), output.data(), kCount);
  std::vector<float> second(kCount / 4 * 3, 5.0f);
  const tern_op other = f32_op(second.data(), second.data(), second.size());
  const tern_batch_op list[] = {{TERN_OP_ALL_REDUCE, 0, &one}, {TERN_OP_ALL_REDUCE, 0, &other}};
  tern_batch batch = TERN_BATCH_INIT;
  batch.ops = list;
  batch.count = 2;
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_submit_batch(group, &batch, &ticket));
  daemon.await_entries(4);
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(output, input);
  EXPECT_EQ(second, std::vector<float>(second.size(), 5.0f));
}

class CopiedPasses : public Copies {
 protected:
  CopiedPasses() : Copies(of_passes()) {}
  static FakeOptions of_passes() {
    FakeOptions options = with_progress();
    options.pass_progress = true;
    return options;
  }
  tern_ticket submit_pass(tern_status (*function)(tern_group*, const tern_op*, tern_ticket*)) {
    tern_op op = f32_op(input.data(), output.data(), kCount);
    tern_ticket ticket = 0;
    EXPECT_EQ(function(group, &op, &ticket), TERN_OK) << tern_error_detail();
    daemon.await_entries(++submitted_);
    return ticket;
  }
  // The recv ends: so many elements have come.
  void receive(std::uint64_t elements) {
    shm::CompletionEntry entry{};
    entry.ticket = daemon.seen().back().entry.ticket;
    entry.elements = elements;
    daemon.inject(daemon.seen().back().lane, entry);
  }

  std::size_t submitted_ = 0;
};

TEST_F(CopiedPasses, ASendIsThereWhenItsSubmissionReturns) {
  const tern_ticket ticket = submit_pass(tern_send);
  int looked = 0;
  daemon.with_held([&](shm::Segment& segment, const Seen& seen) {
    ++looked;
    EXPECT_EQ(seen.entry.flags, shm::kEntryHasProgress);
    EXPECT_EQ(seen.entry.progress_records, 0u);
    EXPECT_EQ(progress_of(segment, seen).input_bytes(), kBytes);
    EXPECT_TRUE(std::ranges::equal(segment.arena().subspan(seen.entry.input_offset, kBytes),
                                   std::as_bytes(std::span(input))));
  });
  EXPECT_EQ(looked, 1);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
}

TEST_F(CopiedPasses, ARecvTakesWhatIsListedAndNoMoreThanCame) {
  std::fill(output.begin(), output.end(), -1.0f);
  const tern_ticket ticket = submit_pass(tern_recv);
  const std::uint32_t lane = daemon.seen().back().lane;
  daemon.with_held([&](shm::Segment& segment, const Seen& seen) {
    std::memcpy(segment.arena().data() + seen.entry.output_offset, input.data(), kBytes);
    progress_of(segment, seen).deliver(lane, 0, {0, 4096});
  });
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_EQ(output[1023], 1024.0f);
  EXPECT_EQ(output[1024], -1.0f);
  receive(kCount - 10);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
  EXPECT_EQ(output[kCount - 11], input[kCount - 11]);
  EXPECT_EQ(output[kCount - 10], -1.0f);
}

TEST_F(Copies, SendsAreCopiedBeforeToADaemonThatDoesNotKnowTheirProgress) {
  tern_op op = f32_op(input.data(), nullptr, kCount);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_send(group, &op, &ticket));
  daemon.await_entries(1);
  EXPECT_EQ(daemon.seen()[0].entry.flags, 0);
}

// Nothing that ends would make room for it.
TEST_F(Copies, ABatchThatFitsNoArenaHasRegionsOrIsOutOfMemory) {
  std::vector<float> much(kTestArenaBytes / sizeof(float) / 2);
  const tern_op op = f32_op(much.data(), nullptr, much.size());
  std::vector<float> more(much.size()), most(much.size());
  tern_op second = op, third = op;
  second.input = more.data();
  third.input = most.data();
  const tern_batch_op list[] = {
      {TERN_OP_BROADCAST, 0, &op}, {TERN_OP_BROADCAST, 0, &second}, {TERN_OP_BROADCAST, 0, &third}};
  tern_batch batch = TERN_BATCH_INIT;
  batch.ops = list;
  batch.count = std::size(list);
  tern_ticket ticket = 0;
  daemon.set_answers(Answers::refuse);
  EXPECT_EQ(tern_submit_batch(group, &batch, &ticket), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(tern_error_detail()).find("operation 2 of the batch (broadcast): no room"),
            std::string::npos)
      << tern_error_detail();
  EXPECT_EQ(daemon.seen().size(), 0u);
  daemon.set_answers(Answers::normal);
  ASSERT_TERN_OK(tern_submit_batch(group, &batch, &ticket));
  daemon.await_entries(6);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::region_create), 2u) << "the refused one too";
}

class OlderDaemon : public Copies {
 protected:
  OlderDaemon() : Copies(older()) {}
  static FakeOptions older() {
    FakeOptions options = with_progress();
    options.progress = false;
    return options;
  }
};

TEST_F(OlderDaemon, GetsTheMemoryBeforeTheEntry) {
  EXPECT_EQ(tern_wait(client, submit(input.data(), output.data()), TERN_FOREVER), TERN_OK);
  EXPECT_EQ(output, input);
  EXPECT_EQ(daemon.seen()[0].entry.flags, 0);
}

}  // namespace
}  // namespace copies_test
}  // namespace tern::testing
