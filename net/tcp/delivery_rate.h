#pragma once

#include "net/transport.h"

namespace tern::net {

// The kernel's own delivery rate of a socket, from the peer's acknowledgements of back-to-back
// segments (tcp(7), TCP_INFO; draft-cheng-iccrg-delivery-rate-estimation). It keeps the last sample
// of a full pipe until it sees a higher one.
DeliveryRate socket_delivery_rate(int socket) noexcept;

}  // namespace tern::net
