#include "shm/spsc_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <limits>
#include <random>
#include <thread>

namespace tern::shm {
namespace {

struct Small {
  std::uint64_t number;
  std::uint64_t copies[3];
};

constexpr std::size_t kEntries = 8;

struct Memory {
  RingIndex index{};
  std::array<Small, kEntries> entries{};
  RingMemory<Small> ring() { return {&index, entries}; }
};

Small entry(std::uint64_t number) { return {number, {number, ~number, number * 3}}; }

bool intact(const Small& e) {
  return e.copies[0] == e.number && e.copies[1] == ~e.number && e.copies[2] == e.number * 3;
}

TEST(SpscRing, RefusesWhenFullAndWhenEmpty) {
  Memory memory;
  RingProducer<Small> producer(memory.ring());
  RingConsumer<Small> consumer(memory.ring());
  Small got{};
  EXPECT_EQ(consumer.try_pop(got), RingResult::would_block);
  EXPECT_TRUE(consumer.empty());
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    EXPECT_TRUE(producer.has_room(kEntries - i));
    EXPECT_FALSE(producer.has_room(kEntries - i + 1));
    EXPECT_EQ(producer.try_push(entry(i)), RingResult::ok);
  }
  EXPECT_EQ(producer.try_push(entry(99)), RingResult::would_block);
  EXPECT_EQ(producer.size(), kEntries);
  EXPECT_EQ(consumer.size(), kEntries);
  EXPECT_EQ(consumer.try_pop(got), RingResult::ok);
  EXPECT_EQ(got.number, 0u);
  EXPECT_EQ(producer.try_push(entry(99)), RingResult::ok);
}

TEST(SpscRing, HasNoRoomForMoreThanItsSize) {
  Memory memory;
  RingProducer<Small> producer(memory.ring());
  EXPECT_FALSE(producer.has_room(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_TRUE(producer.has_room(0));
}

TEST(SpscRing, BehavesLikeAQueue) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Memory memory;
  RingProducer<Small> producer(memory.ring());
  RingConsumer<Small> consumer(memory.ring());
  std::deque<std::uint64_t> model;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const RingResult result = producer.try_push(entry(i));
      ASSERT_EQ(result == RingResult::ok, model.size() < kEntries);
      if (result == RingResult::ok) model.push_back(i);
    } else {
      Small got{};
      const RingResult result = consumer.try_pop(got);
      ASSERT_EQ(result == RingResult::ok, !model.empty());
      if (result != RingResult::ok) continue;
      ASSERT_EQ(got.number, model.front());
      ASSERT_TRUE(intact(got));
      model.pop_front();
    }
    ASSERT_EQ(producer.size(), model.size());
    ASSERT_EQ(consumer.size(), model.size());
  }
}

TEST(SpscRing, TwoThreadsLoseNothing) {
  constexpr std::uint64_t kCount = 100'000;
  Memory memory;
  std::thread writer([&memory] {
    RingProducer<Small> producer(memory.ring());
    for (std::uint64_t i = 0; i < kCount;) {
      if (producer.try_push(entry(i)) == RingResult::ok) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  RingConsumer<Small> consumer(memory.ring());
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kCount;) {
    Small got{};
    if (consumer.try_pop(got) != RingResult::ok) {
      std::this_thread::yield();
      continue;
    }
    wrong += got.number != i || !intact(got) ? 1 : 0;
    ++i;
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(consumer.empty());
}

TEST(SpscRing, AProducerDetectsAnImpossibleHead) {
  for (const std::uint64_t head :
       {std::uint64_t{4}, std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63}) {
    Memory memory;
    RingProducer<Small> producer(memory.ring());
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(producer.try_push(entry(i)), RingResult::ok);
    memory.index.head = head;
    EXPECT_EQ(producer.size(), 0u);
    EXPECT_TRUE(producer.corrupt());
    memory.index.head = 0;
    EXPECT_EQ(producer.try_push(entry(3)), RingResult::corrupt);
    EXPECT_FALSE(producer.has_room(1));
  }
}

TEST(SpscRing, AProducerDetectsAHeadThatGoesBack) {
  Memory memory;
  RingProducer<Small> producer(memory.ring());
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(producer.try_push(entry(i)), RingResult::ok);
  memory.index.head = 2;
  EXPECT_EQ(producer.size(), 1u);
  memory.index.head = 1;
  EXPECT_EQ(producer.size(), 0u);
  EXPECT_TRUE(producer.corrupt());
}

TEST(SpscRing, AConsumerDetectsAnImpossibleTail) {
  for (const std::uint64_t tail : {std::uint64_t{kEntries + 1}, std::uint64_t{1} << 63,
                                   std::numeric_limits<std::uint64_t>::max()}) {
    Memory memory;
    RingConsumer<Small> consumer(memory.ring());
    memory.index.tail = tail;
    EXPECT_FALSE(consumer.empty());
    Small got{};
    EXPECT_EQ(consumer.try_pop(got), RingResult::corrupt);
    memory.index.tail = 1;
    EXPECT_EQ(consumer.try_pop(got), RingResult::corrupt);
  }
}

TEST(SpscRing, AConsumerDetectsATailThatGoesBack) {
  Memory memory;
  RingConsumer<Small> consumer(memory.ring());
  memory.index.tail = 3;
  Small got{};
  ASSERT_EQ(consumer.try_pop(got), RingResult::ok);
  ASSERT_EQ(consumer.size(), 2u);
  memory.index.tail = 2;
  EXPECT_EQ(consumer.size(), 0u);
  EXPECT_TRUE(consumer.corrupt());
}

TEST(SpscRing, EachSideIgnoresWhatIsWrittenOverItsOwnCount) {
  Memory memory;
  RingProducer<Small> producer(memory.ring());
  RingConsumer<Small> consumer(memory.ring());
  ASSERT_EQ(producer.try_push(entry(7)), RingResult::ok);
  Small got{};
  ASSERT_EQ(consumer.try_pop(got), RingResult::ok);
  memory.index.tail = 5;
  ASSERT_EQ(producer.try_push(entry(8)), RingResult::ok);
  EXPECT_EQ(memory.index.tail, 2u);
  memory.index.head = 2;
  ASSERT_EQ(consumer.try_pop(got), RingResult::ok);
  EXPECT_EQ(got.number, 8u);
  EXPECT_EQ(memory.index.head, 2u);
}

TEST(SpscRing, RandomCountsNeverLeadOutside) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Memory memory;
    RingProducer<Small> producer(memory.ring());
    RingConsumer<Small> consumer(memory.ring());
    for (int step = 0; step < 20; ++step) {
      memory.index.head = random() >> (random() % 64);
      memory.index.tail = random() >> (random() % 64);
      Small got{};
      (void)producer.try_push(entry(1));
      (void)consumer.try_pop(got);
      ASSERT_LE(producer.size(), kEntries);
      ASSERT_LE(consumer.size(), kEntries);
    }
  }
}

}  // namespace
}  // namespace tern::shm
