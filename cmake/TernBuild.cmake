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
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)  # see tern_test_prelude
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

find_package(Threads REQUIRED)

# tern_library(<name> SOURCES ... DEPS ... [PRIVATE_DEPS ...]): the static library tern_<name>.
function(tern_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(tern_${name} STATIC ${arg_SOURCES})
  add_library(tern::${name} ALIAS tern_${name})
  target_link_libraries(tern_${name} PUBLIC tern_flags ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
endfunction()

# tern_program(<name> SOURCES ... DEPS ...): an executable in build/bin.
function(tern_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()

# tern_test_prelude(<name>): tests declared from here on read the headers that nearly all of them include from one
# precompiled file. It holds for the compile options of this place; where others begin, another is due. Only the
# sanitizers' presets turn it on (CMAKE_DISABLE_PRECOMPILE_HEADERS): clang takes a third less time with it, GCC a tenth.
# Without its time stamps ccache knows it again in another folder.
macro(tern_test_prelude name)
  add_executable(${name} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/prelude.cc")
  target_link_libraries(${name} PRIVATE tern_flags GTest::gtest GTest::gmock nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/prelude.h")
  target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  set(TERN_TEST_PRELUDE ${name})
endmacro()

# tern_test(<name> SOURCES ... DEPS ... [LABELS ...]): a GoogleTest program. Its folder below tests/ is a
# label too; tools/test_stages.toml selects by labels.
function(tern_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(TERN_TEST_PRELUDE)
    target_precompile_headers(${name} REUSE_FROM ${TERN_TEST_PRELUDE})
  endif()
  # Far beyond what the slowest takes on a busy machine: it ends what hangs.
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests"
             OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${folder};${arg_LABELS}")
endfunction()

# tern_fuzz(<name> SOURCES ... DEPS ...): a libFuzzer target, built only with TERN_FUZZ.
function(tern_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(TERN_FUZZ)
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE tern_flags ${arg_DEPS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  endif()
endfunction()
