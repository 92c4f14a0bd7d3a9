#include "cuda/kernel_image.h"

#ifdef TERN_KERNEL_IMAGE
// The assembler takes the file in as it is.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".globl kTernKernelImage\n"
    ".hidden kTernKernelImage\n"
    "kTernKernelImage:\n"
    ".incbin \"" TERN_KERNEL_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" const unsigned char kTernKernelImage[];
#endif

namespace tern::cuda {

const void* kernel_image() noexcept {
#ifdef TERN_KERNEL_IMAGE
  return kTernKernelImage;
#else
  return nullptr;
#endif
}

}  // namespace tern::cuda
