#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/collectives/collectives.h"

// Helpers of this folder's tests: ranks as threads in several arrangements, random tensors, and an independent,
// slow computation of what a reduction must give.

namespace gyre::collectives::testing {

/// How ranks lie on hosts.
struct Arrangement {
  std::string name;
  std::vector<std::string> host_ids;
  bool segment = true;  ///< Whether the lane has shared memory.
};

/// One host; one host without shared memory; a host each; two hosts that take turns; hosts of three ranks.
std::vector<Arrangement> arrangements(int size);
/// Several hosts of which at least one has several ranks: equal and unequal ones, in order and mixed. None for two
/// ranks.
std::vector<Arrangement> host_arrangements(int size);
Arrangement one_host(int size);
Arrangement a_host_each(int size);

/// Runs `body` on one thread per rank, each with its lane (arenas of `arena_bytes`), and ends with a barrier.
void run_ranks(int size, const Arrangement& arrangement, const std::function<void(group::Lane&)>& body,
               std::size_t arena_bytes = 0, std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// The seed of a test's random numbers: GoogleTest's --gtest_random_seed, or a fixed one. Printed with failures.
std::uint64_t test_seed();

/// Random elements; floats within [0.5, 1.5) with a random sign, so that products of eight stay in range.
Bytes random_elements(DataType type, std::size_t count, std::uint64_t seed, std::uint64_t stream);

double element_as_double(DataType type, std::span<const std::byte> elements, std::size_t index);

/// Empty when `result` is what the reduction of `inputs` (one per rank) must be: exactly for integers and booleans,
/// within the rounding of a sum of that many for floats. Otherwise says where it differs.
std::string difference_from_reference(std::span<const Bytes> inputs, std::span<const std::byte> result,
                                      const Reduction& reduction);

}  // namespace gyre::collectives::testing
