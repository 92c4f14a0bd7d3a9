// What a late answer has made is given back also where memory is short: each allocation fails once.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "client_lib/requests.h"

namespace {

int allocations_left = -1;  // until one fails; negative: none does

}  // namespace

void* operator new(std::size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tern::client_lib {
namespace {

using shm::PacketKind;

void post_release(Requests& requests) {
  requests.post(shm::make_packet<shm::TensorReleasePacket>(PacketKind::tensor_release, 0));
}

// Whether the daemon is told to free a region.
bool hears_of_a_free(shm::PacketSocket& daemon) {
  while (const auto packet = daemon.receive()) {
    shm::RegionPacket freed{};
    if (shm::read_packet(packet->bytes, freed) &&
        freed.header.kind == static_cast<std::uint16_t>(PacketKind::region_free)) {
      return true;
    }
  }
  return false;
}

TEST(RequestsMemoryTest, ALateAnswerIsGivenBackOrTheConnectionEnds) {
  bool has_failed = true;
  for (int n = 0; has_failed; ++n) {
    auto ends = shm::PacketSocket::make_pair();
    ASSERT_TRUE(ends);
    shm::PacketSocket daemon = std::move(ends->second);
    Requests requests(std::move(ends->first));
    const auto none = requests.ask<shm::RegionCreatedPacket>(
        shm::make_packet<shm::RegionCreatePacket>(PacketKind::region_create, 0),
        PacketKind::region_created, Deadline::after_ms(0));
    ASSERT_EQ(none.error().code, Errc::timeout);
    shm::RegionCreatePacket question{};
    ASSERT_TRUE(shm::read_packet(daemon.receive()->bytes, question));
    auto answer = shm::make_packet<shm::RegionCreatedPacket>(PacketKind::region_created,
                                                             question.header.request);
    answer.region = 17;
    ASSERT_TRUE(daemon.send(shm::packet_bytes(answer)));
    allocations_left = n;
    post_release(requests);  // takes the answer
    has_failed = allocations_left < 0;
    allocations_left = -1;
    post_release(requests);
    EXPECT_TRUE(requests.lost() || hears_of_a_free(daemon)) << "allocation " << n << " failed";
  }
}

}  // namespace
}  // namespace tern::client_lib
