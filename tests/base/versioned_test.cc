#include "base/versioned.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace tern {
namespace {

struct Value {
  std::array<std::uint32_t, 9> words{};
  bool operator==(const Value&) const = default;
};

Value filled(std::uint32_t with) {
  Value value;
  value.words.fill(with);
  return value;
}

TEST(Versioned, HasNoValueBeforeTheFirst) {
  Versioned<Value> cell;
  Value value = filled(7);
  EXPECT_FALSE(cell.try_read(value));
  EXPECT_EQ(value, filled(7));
  EXPECT_TRUE(cell.try_write(Value{}));
  EXPECT_TRUE(cell.try_read(value));
  EXPECT_EQ(value, Value{});
}

TEST(Versioned, HasTheLastOne) {
  Versioned<Value> cell;
  for (std::uint32_t i = 1; i < 5; ++i) {
    Value value;
    EXPECT_TRUE(cell.try_write(filled(i)));
    EXPECT_TRUE(cell.try_read(value));
    EXPECT_EQ(value, filled(i));
  }
}

TEST(Versioned, NobodyReadsAMixture) {
  Versioned<Value> cell;
  std::atomic<std::uint32_t> mixtures{0}, read{0}, written{0};
  std::vector<std::thread> threads;
  for (std::uint32_t writer = 1; writer <= 2; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::uint32_t i = 0; i < 20'000; ++i) {
        if (cell.try_write(filled(2 * i + writer))) ++written;
        Value value;
        if (!cell.try_read(value)) continue;
        ++read;
        if (value != filled(value.words[0])) ++mixtures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixtures, 0u);
  EXPECT_GT(read, 0u);
  EXPECT_GE(written, 1u);
}

}  // namespace
}  // namespace tern
