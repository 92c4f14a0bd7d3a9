# Compiles for aarch64 with Debian's cross compiler, against a root of Debian's arm64 packages, and runs what it has
# compiled under qemu-user. The preset `aarch64` reads this file.
#
# A root of its own, because some packages (libisal-dev, prometheus-cpp-dev's parts) cannot be installed for two
# architectures at once. tools/aarch64_root.sh makes it where there is none.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(NOT TERN_AARCH64_ROOT)
  execute_process(COMMAND "${CMAKE_CURRENT_LIST_DIR}/../tools/aarch64_root.sh"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "tools/aarch64_root.sh could not make a root of arm64 packages; it has said why above")
  endif()
  set(TERN_AARCH64_ROOT "${root}" CACHE PATH "A root of Debian's arm64 packages")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TERN_AARCH64_ROOT)

set(CMAKE_SYSROOT "${TERN_AARCH64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

# ctest runs test programs by it, and so does the build what it needs the words of.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}")
