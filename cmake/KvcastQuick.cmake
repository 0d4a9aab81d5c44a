# KVCAST_QUICK: for builds that only run tests, to compile in less time. Libraries, programs, tests and
# benchmarks use precompiled headers. Tests are compiled with -O0, except the tests that compute for a long time.
#
# Programs are not compiled with -O0: the linker takes an inline function from the first object that has it, so the
# libraries would use the slow functions of the program.

# kvcast_precompile(TARGET HEADERS...): precompiles headers.
function(kvcast_precompile target)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <deque> <functional> <map> <memory>
    <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
    <nlohmann/json.hpp> ${ARGN})
  # Without this option, clang writes the times of the headers into the file. ccache then finds no object that uses the
  # file after the next clone.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# Precompiled headers are valid only with equal options. Libraries compile with -fPIC, and programs with -fPIE.
if(KVCAST_QUICK)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers.cc CONTENT "int main() { return 0; }\n")
  add_library(kvcast_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
  target_link_libraries(kvcast_headers PRIVATE kvcast_flags nlohmann_json::nlohmann_json)
  kvcast_precompile(kvcast_headers)
  if(KVCAST_TESTS AND NOT KVCAST_FUZZ)
    add_executable(kvcast_test_headers ${CMAKE_BINARY_DIR}/headers.cc)
    target_compile_options(kvcast_test_headers PRIVATE -O0)
    target_link_libraries(kvcast_test_headers
      PRIVATE kvcast_flags GTest::gmock GTest::gtest_main nlohmann_json::nlohmann_json)
    kvcast_precompile(kvcast_test_headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

# kvcast_quick(TARGET [TEST]): with KVCAST_QUICK, compiles the target in less time. TEST: the target is a program
# that uses GoogleTest.
function(kvcast_quick target)
  if(NOT KVCAST_QUICK)
    return()
  endif()
  if("TEST" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE -O0)
    target_precompile_headers(${target} REUSE_FROM kvcast_test_headers)
  else()
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM kvcast_headers)
  endif()
endfunction()
