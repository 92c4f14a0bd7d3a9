#pragma once

// Sends and recvs of a cluster's ranks, for tests of what passes from rank to rank.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cluster.h"

namespace tern::sim {

// One side, submitted.
struct Passed {
  Client* client = nullptr;
  std::uint64_t ticket = 0;
  std::uint64_t at = 0;  // its memory in the arena
  std::uint64_t count = 0;

  const OpResult& result() const { return client->result(ticket); }
  bool done() const { return client->done(ticket); }
};

// Bytes that nobody else sends.
inline std::byte byte_of(std::uint64_t key, std::uint64_t index) {
  return static_cast<std::byte>(mix64(key * 0x9e3779b97f4a7c15u + index / 8) >> index % 8 * 8);
}

struct PassSpec {
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;
  std::uint64_t count = 0;
  DType dtype = DType::u8;
};

inline OpRequest pass_request(shm::OpKind kind, const PassSpec& spec) {
  OpRequest request;
  request.kind = kind;
  request.dtype = spec.dtype;
  request.count = spec.count;
  request.root = spec.peer;
  request.tag = spec.tag;
  return request;
}

inline Passed send(Cluster& cluster, std::uint32_t rank, const PassSpec& spec,
                   std::uint64_t key = 0) {
  Client& client = *cluster.ranks[rank];
  OpRequest request = pass_request(shm::OpKind::send, spec);
  const std::uint64_t bytes = spec.count * dtype_bytes(spec.dtype);
  request.input = request.output = client.allocate(bytes + 1);
  for (std::uint64_t i = 0; i < bytes; ++i) client.at(request.input)[i] = byte_of(key, i);
  return {&client, client.submit(request), request.input, spec.count};
}

inline Passed recv(Cluster& cluster, std::uint32_t rank, const PassSpec& spec) {
  Client& client = *cluster.ranks[rank];
  OpRequest request = pass_request(shm::OpKind::recv, spec);
  const std::uint64_t bytes = spec.count * dtype_bytes(spec.dtype);
  request.input = request.output = client.allocate(bytes + 1);
  std::memset(client.at(request.output), 0x5a, bytes + 1);
  return {&client, client.submit(request), request.output, spec.count};
}

inline void await(Cluster& cluster, const Passed& passed) {
  ASSERT_TRUE(cluster.world.run_until([&] { return passed.done(); }));
}

// It has succeeded: `bytes` of what was sent with the key, and nothing beyond them.
inline void expect_bytes(const Passed& recv, std::uint64_t key, std::uint64_t bytes) {
  ASSERT_EQ(recv.result().status, Errc::ok) << recv.result().detail;
  const std::byte* const at = recv.client->at(recv.at);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(at[i], byte_of(key, i)) << "byte " << i << " of " << bytes;
  }
  ASSERT_EQ(at[bytes], std::byte{0x5a});
}

inline void expect_failed(const Passed& passed, Errc code, const std::string& text) {
  EXPECT_EQ(passed.result().status, code) << passed.result().detail;
  EXPECT_EQ(passed.result().detail, text);
}

}  // namespace tern::sim
