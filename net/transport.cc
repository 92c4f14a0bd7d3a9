#include "net/transport.h"

namespace tern::net {

const char* memory_kind_name(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host:
      return "host";
    case MemoryKind::device:
      return "device";
  }
  return "unknown";
}

Status Transport::remember_memory(const Memory& memory) {
  if (memory.kind == MemoryKind::host) return {};
  return tern::fail(Errc::unsupported,
                    std::string("the transport ") + name() + " cannot send from " +
                        memory_kind_name(memory.kind) +
                        " memory: stage it through host memory, that is, copy what is to be sent "
                        "there and send the copy");
}

}  // namespace tern::net
