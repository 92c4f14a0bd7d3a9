#pragma once

// A group of two clients of this node, which declare tensors and release them.

#include <cstring>
#include <string>

#include "daemon/conductor/tensor_registry.h"
#include "part_rig.h"

namespace tern::daemon::conductor_test {

class TensorRegistryTest : public PartRig {
 protected:
  void SetUp() override {
    greet(connect(1));
    greet(connect(2));
    group_ = &add_group({1, 2});
    take_all();
  }
  void take_all() {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }
  shm::TensorDeclarePacket packet(const char* name) {
    auto made =
        shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, ++request_);
    made.group = group_->number;
    made.count = 1000;
    made.dtype = static_cast<std::uint8_t>(DType::f32);
    made.role = static_cast<std::uint8_t>(Role::gradient);
    std::strcpy(made.name, name);
    std::strcpy(made.recipe, "ef(3lc:s=1)");
    return made;
  }
  // What the client was told: ok, or the error.
  Errc declare(std::uint64_t client, const shm::TensorDeclarePacket& packet) {
    EXPECT_TRUE(tensors_.declare(*clients_.find(client), packet));
    const auto answer = answer_to(packet.header.request);
    EXPECT_TRUE(answer);
    if (answer->kind == shm::PacketKind::tensor_declared) return Errc::ok;
    text_ = answer->text;
    return answer->status;
  }
  Errc declare(std::uint64_t client, const char* name) { return declare(client, packet(name)); }
  void release(std::uint64_t client, std::uint64_t tensor) {
    auto made =
        shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, ++request_);
    made.group = group_->number;
    made.tensor = tensor;
    tensors_.release(clients_.at(client), made);
  }
  // Of the only tensor, which the first client has declared.
  void release_only() {
    const std::uint64_t id = only().state->id;
    release(1, id);
    const std::uint32_t last = only().releases;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, last);
    EXPECT_TRUE(group_->tensors.empty());
  }
  std::size_t drops_of(std::uint32_t lane) {
    std::size_t count = 0;
    for (const Command& command : commands_of(lane)) {
      count += std::holds_alternative<command::DropTensor>(command) ? 1 : 0;
    }
    return count;
  }
  const DeclaredTensor& only() const { return group_->tensors.all().begin()->second; }

  MemberGroup* group_ = nullptr;
  TensorRegistry tensors_{settings_, outlets_, {groups_, quotas_, kept_, refusals_, nullptr}};
  std::uint64_t request_ = 200;
  std::string text_;
};

}  // namespace tern::daemon::conductor_test
