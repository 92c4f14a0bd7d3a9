#include "codec/workspace.h"

#include <cstdlib>
#include <new>

namespace tern::codec {

// So much comes from the system as pages that cost nothing until they are written.
Workspace::Workspace()
    : memory_(static_cast<std::byte*>(std::malloc(kParts * kPartBytes + kBytesSlack))) {
  if (!memory_) throw std::bad_alloc();
}

void Workspace::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

}  // namespace tern::codec
