#pragma once

// Sections of the configuration that parts of the daemon take whole.

#include <cstdint>
#include <string>
#include <vector>

namespace tern::daemon {

// [ops]
struct OpSettings {
  std::uint64_t chunk_bytes = std::uint64_t{256} * 1024;  // a power of two
  std::uint64_t eager_bytes = std::uint64_t{64} * 1024;
  std::uint32_t cut = 3;          // shm::CutVersion
  std::uint32_t eager_form = 3;   // collective::EagerForm
  std::uint32_t rooted_form = 2;  // collective::RootedForm
  std::uint32_t max_ops_in_flight = 128;
  std::uint64_t op_timeout_ns = 600'000'000'000;
  std::uint64_t join_timeout_max_ns = 3'600'000'000'000;
  bool verify = false;
};

// [codec], what is asked when a tensor is declared.
struct TensorSettings {
  std::string default_gradient_recipe = "auto";
  std::uint64_t lossy_min_bytes = std::uint64_t{8} * 1024;
  std::uint64_t state_ttl_ns = 0;
};

// [local], who may connect. Both lists empty: everyone who can reach the socket.
struct Admission {
  std::vector<std::uint32_t> allowed_uids;
  std::vector<std::uint32_t> allowed_gids;
};

// [limits]
struct Limits {
  std::uint32_t max_clients = 256;
  std::uint32_t max_clients_per_user = 64;
  std::uint32_t max_groups = 256;
  std::uint32_t max_groups_per_user = 128;
  std::uint32_t max_tensors = 65'536;
  std::uint32_t max_tensors_per_user = 32'768;
  std::uint32_t max_ops_in_flight_per_user = 16'384;
  std::uint32_t max_links_per_user = 4'096;
  std::uint64_t max_memory_bytes = 0;  // 0: what the daemon's unit or machine has
  std::uint64_t max_arena_bytes = 0;   // 0: three quarters of that
  std::uint64_t max_state_bytes = 16ULL << 30;
};

}  // namespace tern::daemon
