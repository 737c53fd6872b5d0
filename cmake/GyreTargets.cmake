# One folder = one target = one namespace.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Where programs in the build folder find libgyre_parquet and libgyre_curl.
set(CMAKE_BUILD_RPATH "${PROJECT_BINARY_DIR}/lib")
# -O3, CMake's choice, takes longer to compile; the loops that matter are vectorised by hand. The wheel's build uses it too, so
# that ccache has its objects.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(GYRE_CCACHE ccache)
if(GYRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these two ccache does not cache what uses a precompiled header; ours has no __TIME__ and no macros of its own.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${GYRE_CCACHE}")
endif()

# Flags that every target of ours gets; never global, so that dependencies keep theirs.
add_library(gyre_flags INTERFACE)
# A warning of a compiler that we do not know must not end somebody else's build.
target_compile_options(gyre_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
  $<$<BOOL:${PROJECT_IS_TOP_LEVEL}>:-Werror> -fno-math-errno
  # GYRE_CHECK(a == b) captures `a` with <<, which binds tighter than ==; that is the point of it.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-overloaded-shift-op-parentheses>
  # Deep inlining in std:: makes GCC 12 report bounds and lifetimes that do not exist.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized -Wno-interference-size>)
target_include_directories(gyre_flags INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
target_compile_definitions(gyre_flags INTERFACE GYRE_VERSION="${PROJECT_VERSION}")
if(GYRE_SANITIZE STREQUAL "address")
  target_compile_options(gyre_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(gyre_flags INTERFACE -fsanitize=address,undefined)
elseif(GYRE_SANITIZE STREQUAL "undefined")
  # vptr asks for the type information of libtorch's classes, which does not show all of it.
  target_compile_options(gyre_flags INTERFACE -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  target_link_options(gyre_flags INTERFACE -fsanitize=undefined)
elseif(GYRE_SANITIZE STREQUAL "thread")
  target_compile_options(gyre_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(gyre_flags INTERFACE -fsanitize=thread)
endif()
if(GYRE_BUILD_FUZZERS)
  # Coverage of the libraries themselves guides the fuzzer; the targets alone would leave it blind.
  target_compile_options(gyre_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_program(GYRE_MOLD mold)
if(GYRE_MOLD)
  target_link_options(gyre_flags INTERFACE -fuse-ld=mold)
endif()

# What most files of libraries and of tests include. Files still include what they use.
set(gyre_precompiled_headers_library <spdlog/logger.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring>
  <functional> <map> <memory> <mutex> <optional> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector>)
set(gyre_precompiled_headers_test <gmock/gmock.h> <gtest/gtest.h> ${gyre_precompiled_headers_library})
# libtorch's headers take ten seconds per file, and less than one from here. For libraries, programs and tests alike: it takes half a minute to make.
set(gyre_precompiled_headers_torch ${gyre_precompiled_headers_library} <ATen/ATen.h>)

# gyre_precompile(target kind): parses those headers once for all targets of a kind, instead of once per file. The first target
# of a kind makes the precompiled header, the others use it. ./dev lint looks at changed files without it, so that one that
# includes too little is found.
function(gyre_precompile target kind)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT kind STREQUAL "test")
    target_compile_options(${target} PRIVATE -fPIC)  # As the libraries, which use the same precompiled header.
  endif()
  get_property(owner GLOBAL PROPERTY gyre_precompiled_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${gyre_precompiled_headers_${kind}})
    set_property(GLOBAL PROPERTY gyre_precompiled_${kind} ${target})
  endif()
endfunction()

# gyre_library(base SOURCES a.cc b.cc DEPENDS fmt::fmt [LIBTORCH]). LIBTORCH: its files include libtorch.
function(gyre_library name)
  cmake_parse_arguments(ARG "LIBTORCH" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(gyre_${name} STATIC ${ARG_SOURCES})
  add_library(gyre::${name} ALIAS gyre_${name})
  target_link_libraries(gyre_${name} PUBLIC ${ARG_DEPENDS} PRIVATE gyre_flags ${ARG_PRIVATE_DEPENDS})
  target_include_directories(gyre_${name} PUBLIC "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
  target_compile_features(gyre_${name} PUBLIC cxx_std_20)
  # What libgyre shows is said in one place, cmake/package/exports.map, which can hide names but not show hidden ones. All
  # names stay within one library or program, so that calls among them need no detour.
  set_target_properties(gyre_${name} PROPERTIES CXX_VISIBILITY_PRESET default)
  target_compile_options(gyre_${name} PRIVATE -fno-semantic-interposition)
  if(ARG_LIBTORCH)
    gyre_precompile(gyre_${name} torch)
  else()
    gyre_precompile(gyre_${name} library)
  endif()
endfunction()

# gyre_may_load_parquet(target): whoever builds this program alone gets libgyre_parquet too, which nothing links.
function(gyre_may_load_parquet target)
  if(TARGET gyre_parquet)
    add_dependencies(${target} gyre_parquet)
  endif()
endfunction()

# gyre_test(base SOURCES error_test.cc DEPENDS gyre::base [LIBTORCH] [TIMEOUT seconds]): one test binary per folder.
# CTest starts them by tests/support/run_test.cc, which names what they leave behind.
# One OpenMP thread each, because ctest runs as many tests at once as there are cores: more of them would only spin.
function(gyre_test name)
  if(NOT GYRE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "LIBTORCH" "TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(gyre_${name}_test ${ARG_SOURCES})
  target_link_libraries(gyre_${name}_test PRIVATE ${ARG_DEPENDS} gyre_flags GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_LIBTORCH)
    gyre_precompile(gyre_${name}_test torch)
  else()
    gyre_precompile(gyre_${name}_test test)
  endif()
  gyre_may_load_parquet(gyre_${name}_test)
  set_target_properties(gyre_${name}_test PROPERTIES CROSSCOMPILING_EMULATOR "${PROJECT_BINARY_DIR}/tests/run_test")
  add_dependencies(gyre_${name}_test gyre_test_runner)
  gtest_discover_tests(gyre_${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

# gyre_training_program(cifar10 SOURCES a.cc [DEPENDS yaml-cpp::yaml-cpp]): gyre-cifar10. Its main.cc is thin; what it
# does is the library gyre_cifar10_training, so that tests can train in-process.
function(gyre_training_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(gyre_${name}_training STATIC ${ARG_SOURCES})
  target_link_libraries(gyre_${name}_training PUBLIC gyre_training PRIVATE gyre_flags ${ARG_DEPENDS})
  gyre_precompile(gyre_${name}_training torch)
  add_executable(gyre_${name} main.cc)
  set_target_properties(gyre_${name} PROPERTIES OUTPUT_NAME gyre-${name})
  target_link_libraries(gyre_${name} PRIVATE gyre_${name}_training gyre_training_sources gyre_flags)
  gyre_precompile(gyre_${name} torch)
  gyre_may_load_parquet(gyre_${name})
endfunction()

# gyre_messages(TARGET group SCHEMAS messages.fbs): FlatBuffers headers as <generated>/gyre/<folder>/<name>_generated.h
function(gyre_messages)
  cmake_parse_arguments(ARG "" "TARGET" "SCHEMAS" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  foreach(schema ${ARG_SCHEMAS})
    get_filename_component(stem ${schema} NAME_WE)
    get_filename_component(subfolder ${schema} DIRECTORY)
    set(directory "${PROJECT_BINARY_DIR}/generated/${folder}/${subfolder}")
    set(header "${directory}/${stem}_generated.h")
    add_custom_command(OUTPUT "${header}"
      COMMAND ${FLATC} --cpp --cpp-std c++17 --scoped-enums --warnings-as-errors -o "${directory}" "${CMAKE_CURRENT_SOURCE_DIR}/${schema}"
      DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${schema}" VERBATIM)
    target_sources(gyre_${ARG_TARGET} PRIVATE "${header}")
  endforeach()
endfunction()
