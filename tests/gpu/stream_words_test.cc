#include "gpu/stream_words.h"

#include "fake_driver.h"

namespace tern::gpu {
namespace stream_words_test {

using testing::HasSubstr;

class StreamWordsTest : public FakeDriverTest {
 protected:
  std::unique_ptr<StreamWords> make(std::size_t count) {
    auto words = StreamWords::create(*driver_, count);
    EXPECT_TRUE(words.has_value()) << words.error().text;
    return std::move(*words);
  }

  std::unique_ptr<Driver> driver_ = open();
};

TEST_F(StreamWordsTest, AStreamGoesOnWhenItsWordIsReached) {
  const auto words = make(3);
  Stream first = stream_of(1);
  Stream second = stream_of(2);
  ASSERT_TRUE(words->wait(first, 0, 5));
  ASSERT_TRUE(words->wait(second, 2, 1));
  EXPECT_FALSE(fake().run(first));
  words->release(0, 4);
  EXPECT_FALSE(fake().run(first));
  words->release(0, 6);
  EXPECT_TRUE(fake().run(first));
  EXPECT_FALSE(fake().run(second));
  words->release(2, 1);
  EXPECT_TRUE(fake().run(second));
}

// Operations complete in any order; a word never goes back.
TEST_F(StreamWordsTest, AnEarlierValueChangesNothing) {
  const auto words = make(1);
  words->release(0, 7);
  words->release(0, 3);
  ASSERT_TRUE(words->wait(stream_of(1), 0, 7));
  EXPECT_TRUE(fake().run(stream_of(1)));
}

TEST_F(StreamWordsTest, WhenTheDaemonIsLostEveryStreamGoesOn) {
  const auto words = make(2);
  ASSERT_TRUE(words->wait(stream_of(1), 0, 5));
  ASSERT_TRUE(words->wait(stream_of(2), 1, StreamWords::kLost - 1));
  EXPECT_FALSE(words->is_lost(0));
  words->lose();
  EXPECT_TRUE(fake().run(stream_of(1)));
  EXPECT_TRUE(fake().run(stream_of(2)));
  EXPECT_TRUE(words->is_lost(0));
  // A late release takes the mark back for nobody.
  words->release(0, 6);
  EXPECT_TRUE(words->is_lost(0));
  ASSERT_TRUE(words->wait(stream_of(1), 0, 9));
  EXPECT_TRUE(fake().run(stream_of(1)));
}

TEST_F(StreamWordsTest, MemoryThatCannotBePinnedIsReported) {
  fake().fail("cuMemHostRegister_v2", kOutOfMemory, 0);
  const auto words = StreamWords::create(*driver_, 1);
  ASSERT_FALSE(words.has_value());
  EXPECT_EQ(words.error().code, Errc::out_of_memory);
  EXPECT_THAT(words.error().text, HasSubstr("cannot pin the words"));
  EXPECT_THAT(words.error().text, HasSubstr("lock less memory"));
}

TEST_F(StreamWordsTest, MemoryThatCannotBeMappedIsUnpinned) {
  fake().fail("cuMemHostGetDevicePointer_v2", 999, 0);
  EXPECT_FALSE(StreamWords::create(*driver_, 1).has_value());
  EXPECT_EQ(fake().held(), 0);
}

TEST_F(StreamWordsTest, AContextThatIsGoneIsReported) {
  const auto words = make(1);
  fake().fail("cuStreamWaitValue64_v2", kInvalidContext, 0);
  const auto waited = words->wait(stream_of(1), 0, 1);
  ASSERT_FALSE(waited.has_value());
  EXPECT_THAT(waited.error().text, HasSubstr("let a stream wait"));
}

}  // namespace stream_words_test
}  // namespace tern::gpu
