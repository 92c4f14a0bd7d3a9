#include "daemon/conductor/declaration_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/dtype.h"
#include "shm/packet_socket.h"

namespace tern::daemon::declaration_check_test {
namespace {

shm::TensorDeclarePacket sound() {
  auto packet = shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 1);
  packet.count = 1000;
  packet.dtype = static_cast<std::uint8_t>(DType::f32);
  packet.role = static_cast<std::uint8_t>(Role::gradient);
  std::strcpy(packet.name, "w");
  return packet;
}

// Empty: it is sound.
std::string problem_of(const shm::TensorDeclarePacket& packet) {
  const Status checked = check_declaration(packet);
  if (checked) return "";
  EXPECT_EQ(checked.error().code, Errc::invalid_argument);
  return checked.error().text;
}

TEST(DeclarationCheck, ATextMustEnd) {
  EXPECT_EQ(problem_of(sound()), "");
  for (int text = 0; text < 3; ++text) {
    shm::TensorDeclarePacket packet = sound();
    if (text == 0) std::memset(packet.name, 'n', sizeof(packet.name));
    if (text == 1) std::memset(packet.recipe, 'r', sizeof(packet.recipe));
    if (text == 2) std::memset(packet.level, 'l', sizeof(packet.level));
    EXPECT_NE(problem_of(packet), "") << text;
  }
  shm::TensorDeclarePacket nameless = sound();
  nameless.name[0] = '\0';
  EXPECT_EQ(problem_of(nameless), "a tensor's name must have 1 to 127 bytes");
}

TEST(DeclarationCheck, NumbersMustBeKnown) {
  shm::TensorDeclarePacket packet = sound();
  packet.dtype = 200;
  EXPECT_EQ(problem_of(packet), "unknown dtype 200");
  packet = sound();
  packet.role = 99;
  EXPECT_EQ(problem_of(packet), "unknown role 99");
  packet = sound();
  packet.client_blocks = 77;
  EXPECT_EQ(problem_of(packet), "unknown form of client_blocks 77");
  for (const std::uint64_t count : {std::uint64_t{0}, (std::uint64_t{1} << 40) + 1}) {
    packet = sound();
    packet.count = count;
    EXPECT_EQ(problem_of(packet), "count must be 1 .. 2^40") << count;
  }
}

TEST(DeclarationCheck, ALevelIsANameOrABound) {
  shm::TensorDeclarePacket packet = sound();
  for (const char* level :
       {"", "lossless", "conservative", "balanced", "aggressive", "loss<=0.01", "residual<=2"}) {
    std::strcpy(packet.level, level);
    EXPECT_EQ(problem_of(packet), "") << level;
  }
  for (const char* level : {"reckless", "loss<=x", "recipe=raw"}) {
    std::strcpy(packet.level, level);
    EXPECT_NE(problem_of(packet), "") << level;
  }
}

}  // namespace
}  // namespace tern::daemon::declaration_check_test
