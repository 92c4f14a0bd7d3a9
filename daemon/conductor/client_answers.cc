#include "daemon/conductor/client_answers.h"

#include <cstring>

namespace tern::daemon {

void ClientAnswers::done(std::uint64_t client, std::uint64_t request, Errc code,
                         const std::string& text) {
  auto packet = shm::make_packet<shm::DonePacket>(shm::PacketKind::done, request);
  packet.status = static_cast<std::int32_t>(code);
  std::strncpy(packet.detail, text.c_str(), sizeof(packet.detail) - 1);
  send(client, packet);
}

}  // namespace tern::daemon
