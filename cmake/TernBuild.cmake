# Options, compile flags and the three functions with which every folder declares its targets.
include(GNUInstallDirs)
include(CTest)

option(TERN_BUILD_TESTS "Build the tests" ON)
option(TERN_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(TERN_WERROR "Treat warnings as errors" ON)
option(TERN_FEW_SIMD_TARGETS "Leave out the kernels for SSE4, so that the codecs compile in less time" OFF)
set(TERN_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, for example address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT DEFINED CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)  # see tern_precompile_headers
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(tern_flags INTERFACE)
# Contraction off: a fused multiply-add would give other bits on other targets (docs/codecs.md).
target_compile_options(tern_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 sees overlaps in every concatenation of std::string (GCC bug 105651).
  target_compile_options(tern_flags INTERFACE -Wno-restrict)
  # It collects garbage from 500 MB on, which most files never reach: a tenth of their time.
  target_compile_options(tern_flags INTERFACE --param=ggc-min-heapsize=500000)
  # In a unity build it takes a source for a header, whose unnamed namespace should not be in a class.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(tern_flags INTERFACE -Wno-subobject-linkage)
  endif()
endif()
if(TERN_WERROR)
  target_compile_options(tern_flags INTERFACE -Werror)
endif()
if(TERN_SANITIZE)
  target_compile_options(tern_flags INTERFACE
    -fsanitize=${TERN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tern_flags INTERFACE -fsanitize=${TERN_SANITIZE})
  target_compile_definitions(tern_flags INTERFACE _GLIBCXX_ASSERTIONS TERN_SANITIZES)
  if(TERN_SANITIZE MATCHES thread)
    target_compile_definitions(tern_flags INTERFACE TERN_SANITIZES_THREADS)
  endif()
endif()
target_include_directories(tern_flags INTERFACE "${PROJECT_SOURCE_DIR}")

# For what follows in a folder, where nothing loops over tensors: under sanitizers it would take longer to
# compile than to run, and -O0 halves the former.
macro(tern_compile_quickly)
  if(TERN_SANITIZE)
    add_compile_options(-O0)
  endif()
endmacro()

# The same, and no op waits for it: -O3 takes nearly twice as long to compile as -O1.
macro(tern_compile_cold)
  tern_compile_quickly()
  if(NOT TERN_SANITIZE)
    add_compile_options($<$<CONFIG:Release>:-O1>)
  endif()
endmacro()

# For what follows in a folder, which every op runs through: functions are taken into their callers in other folders
# when ternd and libtern.so are linked (docs/adr/0050). The objects have bytecode beside machine code, since otherwise
# every test program would take as long to link. The table of an archive must list the functions of the machine code
# alone: by the bytecode's a linker that ignores bytecode looks into an archive twice, and finds everything doubled.
set(TERN_LINKS_HOT OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL Release AND NOT TERN_SANITIZE
   AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(TERN_LINKS_HOT ON)
  add_link_options(-fno-lto)
  set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcs --target=elf64-x86-64 <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qs --target=elf64-x86-64 <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_CXX_ARCHIVE_FINISH "")
endif()
macro(tern_compile_hot)
  if(TERN_LINKS_HOT)
    add_compile_options(-flto=auto -ffat-lto-objects)
  endif()
endmacro()

# tern_link_hot(<target>): a program or shared library that is linked as tern_compile_hot() says.
function(tern_link_hot name)
  if(TERN_LINKS_HOT)
    get_target_property(options ${name} LINK_OPTIONS)
    list(REMOVE_ITEM options -fno-lto)
    set_target_properties(${name} PROPERTIES LINK_OPTIONS "${options};-flto=auto")
  endif()
endfunction()

# What is only tested is linked by lld where it is there, which takes less time than GNU ld: whole builds of clang, and
# what GCC links after tern_link_quickly(), which has no bytecode of GCC to read.
find_program(TERN_LLD ld.lld)
macro(tern_link_quickly)
  if(TERN_LLD AND NOT CMAKE_CROSSCOMPILING)
    add_link_options(-fuse-ld=lld)
  endif()
endmacro()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  tern_link_quickly()
endif()

find_package(Threads REQUIRED)

# tern_precompile_headers(<name> libraries|tests): the target reads what nearly all of its kind include from one
# precompiled file. Targets with the same options share one, which the first of them makes. Only presets with a unity
# build turn it on (CMAKE_DISABLE_PRECOMPILE_HEADERS), so that a file that lacks an include fails in the others. With
# GCC a library gains by it only where it is compiled by tern_compile_cold(). Without its time stamps ccache knows the
# file again in another folder.
function(tern_precompile_headers name kind)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  # Both that of the folder and those given to the target so far; options for another configuration do not count.
  get_target_property(options ${name} COMPILE_OPTIONS)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Release)
    list(FILTER options EXCLUDE REGEX "CONFIG:Release")
  endif()
  list(FILTER options EXCLUDE REGEX "NOTFOUND$")
  list(REMOVE_DUPLICATES options)
  if(kind STREQUAL libraries AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT options MATCHES "-O1>$")
    return()
  endif()
  string(MD5 key "${kind} ${options}")
  if(NOT TARGET tern_prelude_${key})
    if(kind STREQUAL tests)
      add_executable(tern_prelude_${key} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/prelude.cc")
      target_link_libraries(tern_prelude_${key} PRIVATE GTest::gtest GTest::gmock)
      target_precompile_headers(tern_prelude_${key} PRIVATE "${PROJECT_SOURCE_DIR}/tests/prelude.h")
    else()
      add_library(tern_prelude_${key} STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/prelude.cc")
      target_precompile_headers(tern_prelude_${key} PRIVATE
        <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream>
        <functional> <map> <memory> <optional> <set> <span> <sstream> <string> <string_view> <thread>
        <unordered_map> <vector> <nlohmann/json.hpp> <tl/expected.hpp>)
    endif()
    target_link_libraries(tern_prelude_${key} PRIVATE tern_flags)
    set_target_properties(tern_prelude_${key} PROPERTIES COMPILE_OPTIONS "${options}" UNITY_BUILD OFF)
    target_compile_options(tern_prelude_${key} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
  target_precompile_headers(${name} REUSE_FROM tern_prelude_${key})
endfunction()

# The libraries that fuzz targets feed report their coverage to libFuzzer. No other does: that takes a fifth of the
# time to compile and to run.
set(TERN_FUZZED_LIBRARIES base wire counters net tuner membership tensor codec codec_target codec_quantizer
    codec_sparsifier codec_entropy codec_lossless)

# tern_library(<name> SOURCES ... DEPS ... [PRIVATE_DEPS ...]): the static library tern_<name>.
function(tern_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(tern_${name} STATIC ${arg_SOURCES})
  add_library(tern::${name} ALIAS tern_${name})
  if(TERN_FUZZ AND TERN_SANITIZE AND name IN_LIST TERN_FUZZED_LIBRARIES)
    target_compile_options(tern_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  target_link_libraries(tern_${name} PUBLIC tern_flags ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  tern_precompile_headers(tern_${name} libraries)
endfunction()

# tern_program(<name> SOURCES ... DEPS ...): an executable in build/bin.
function(tern_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  tern_precompile_headers(${name} libraries)
  # As a library's, so that the precompiled file fits.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
endfunction()

# Seconds that the longest programs take, roughly: ctest begins with these, so that none runs alone at the end. What
# runs one at a time (tests/e2e) begins before them.
set(TERN_TEST_SECONDS sim_switched_schedule_test 180 codec_device_test 90 sim_client_blocks_test 90
    sim_late_client_blocks_test 90 sim_test 80 codec_test 70 sim_late_test 40 net_tls_test 30
    tuner_simulation_test 30 net_tcp_test 25 net_faulty_test 20 sim_daemons_test 16 sim_late_daemons_test 16
    group_ops_test 16 shm_test 15)
function(tern_test_cost name)
  list(FIND TERN_TEST_SECONDS ${name} place)
  if(NOT place EQUAL -1)
    math(EXPR place "${place} + 1")
    list(GET TERN_TEST_SECONDS ${place} seconds)
    set_tests_properties(${name} PROPERTIES COST ${seconds})
  endif()
endfunction()

# tern_test_program(<name> SOURCES ... DEPS ...): a GoogleTest program.
function(tern_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  tern_precompile_headers(${name} tests)
endfunction()

# tern_test(<name> SOURCES ... DEPS ... [LABELS ...] [TIMEOUT seconds]): a GoogleTest program and its entry of ctest.
# Its folder below tests/ is a label too; tools/test_stages.toml selects by labels.
function(tern_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  tern_test_program(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS})
  # Far beyond what the slowest takes on a busy machine: it ends what hangs.
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests"
             OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${folder};${arg_LABELS}")
  tern_test_cost(${name})
endfunction()

# tern_test_on_gpu(<name> PROGRAM ... FILTER ...): cases of a test program on the first GPU of this machine. Where there
# is none it says so, and is skipped.
function(tern_test_on_gpu name)
  cmake_parse_arguments(arg "" "PROGRAM;FILTER" "" ${ARGN})
  get_test_property(${arg_PROGRAM} LABELS labels)
  add_test(NAME ${name} COMMAND ${arg_PROGRAM} "--gtest_filter=${arg_FILTER}")
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT TERN_TEST_TARGET=gpu TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS "${labels}")
endfunction()

# tern_fuzz(<name> SOURCES ... DEPS ...): a libFuzzer target, built only with TERN_FUZZ.
function(tern_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  foreach(dependency IN LISTS arg_DEPS)
    string(REPLACE "tern::" "" library "${dependency}")
    if(dependency MATCHES "^tern::" AND NOT library IN_LIST TERN_FUZZED_LIBRARIES)
      message(FATAL_ERROR "${name} feeds ${dependency}: add it to TERN_FUZZED_LIBRARIES")
    endif()
  endforeach()
  if(TERN_FUZZ)
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  endif()
endfunction()
