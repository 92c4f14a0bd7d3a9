#include "daemon/conductor/declaration_check.h"

#include <string>

#include "base/dtype.h"
#include "daemon/tuning/tuning_policy.h"
#include "shm/packet_socket.h"

namespace tern::daemon {

Status check_declaration(const shm::TensorDeclarePacket& packet) {
  if (!shm::terminated(packet.name) || packet.name[0] == '\0') {
    return fail(Errc::invalid_argument, "a tensor's name must have 1 to 127 bytes");
  }
  if (!shm::terminated(packet.recipe) || !shm::terminated(packet.level)) {
    return fail(Errc::invalid_argument, "the recipe's or level's text does not end");
  }
  const std::string level = packet.level;
  if (TuningAdvice advice; !level.empty()) {
    const auto read = read_advice(level, advice);
    if (!read || !advice.recipe.empty()) {
      return fail(Errc::invalid_argument,
                  "level is one of lossless, conservative, balanced, aggressive, or a bound as "
                  "loss<=0.01 or residual<=2");
    }
  }
  if (dtype_bytes(static_cast<DType>(packet.dtype)) == 0) {
    return fail(Errc::invalid_argument, "unknown dtype " + std::to_string(packet.dtype));
  }
  if (packet.role > static_cast<std::uint8_t>(Role::weights)) {
    return fail(Errc::invalid_argument, "unknown role " + std::to_string(packet.role));
  }
  if (packet.client_blocks > shm::kBlocksByTuner) {
    return fail(Errc::invalid_argument,
                "unknown form of client_blocks " + std::to_string(packet.client_blocks));
  }
  if (packet.count == 0 || packet.count > (std::uint64_t{1} << 40)) {
    return fail(Errc::invalid_argument, "count must be 1 .. 2^40");
  }
  return {};
}

std::string declaration_text(const TensorState& state) {
  return std::to_string(state.count) + " " + std::string(dtype_name(state.dtype)) + " (" +
         std::string(role_name(state.role)) + (state.exempt ? ", exempt" : "") + ", recipe " +
         codec::canonical_text(state.declared.recipe) + ")";
}

}  // namespace tern::daemon
