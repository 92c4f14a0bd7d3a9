#include "gpu/stream_words.h"

#include <new>

#include "base/check.h"
#include "gpu/memory.h"

namespace tern::gpu {

StreamWords::StreamWords(const Driver& driver, std::size_t count)
    : driver_(driver),
      count_(count),
      words_(
          static_cast<Word*>(std::aligned_alloc(page_bytes(), whole_pages(count * sizeof(Word))))) {
  TERN_CHECK(words_ != nullptr);
  for (std::size_t i = 0; i < count; ++i) new (&words_[i]) Word();
}

Result<std::unique_ptr<StreamWords>> StreamWords::create(const Driver& driver, std::size_t count) {
  std::unique_ptr<StreamWords> made(new StreamWords(driver, count));
  const DriverApi& api = driver.api();
  void* const memory = made->words_.get();
  const auto pinned =
      driver.check(api.pin(memory, count * sizeof(Word), kRegisterPortable | kRegisterMapped),
                   "pin the words that streams wait for");
  if (!pinned) return tl::unexpected(pinned.error());
  const auto mapped = driver.check(api.pinned_address(&made->address_, memory, 0),
                                   "map the words that streams wait for");
  if (!mapped) {
    api.unpin(memory);
    made->address_ = 0;
    return tl::unexpected(mapped.error());
  }
  return made;
}

StreamWords::~StreamWords() {
  if (address_ != 0) driver_.api().unpin(words_.get());
}

Status StreamWords::wait(Stream stream, std::size_t i, std::uint64_t value) const {
  TERN_CHECK(i < count_ && value < kLost);
  return driver_.check(
      driver_.api().wait_word(stream, address_ + i * sizeof(Word), value, kWaitAtLeast),
      "let a stream wait for an operation");
}

void StreamWords::release(std::size_t i, std::uint64_t value) noexcept {
  std::atomic<std::uint64_t>& word = words_[i].value;
  std::uint64_t now = word.load(std::memory_order_relaxed);
  // Release: what was written before is there for whoever waits.
  while (now < value && !word.compare_exchange_weak(now, value, std::memory_order_release,
                                                    std::memory_order_relaxed)) {
  }
}

void StreamWords::lose() noexcept {
  for (std::size_t i = 0; i < count_; ++i) release(i, kLost);
}

bool StreamWords::is_lost(std::size_t i) const noexcept {
  return words_[i].value.load(std::memory_order_acquire) >= kLost;
}

}  // namespace tern::gpu
