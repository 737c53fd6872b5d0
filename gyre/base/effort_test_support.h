#pragma once

#include <cstdint>
#include <cstdlib>

// How much tests of many cases try, and which; tests/support/effort.py says the same to those in Python.
namespace gyre {

/// Another one each day, so that no two days try the same cases; GYRE_TEST_SEED repeats a day's.
inline std::uint64_t seed_of_day() {
  const char* seed = std::getenv("GYRE_TEST_SEED");
  return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
}

/// For cases that are numbered: more than one day has lie between the first numbers of two.
inline std::uint64_t first_case_of_day() { return seed_of_day() * 1'000'000; }

/// `./dev test --long`
inline bool is_long_test() { return std::getenv("GYRE_TEST_LONG") != nullptr; }

}  // namespace gyre
