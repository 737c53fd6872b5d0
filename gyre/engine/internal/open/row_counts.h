#pragma once

#include <cstdint>
#include <vector>

#include "gyre/engine/request.h"

// How the ranks of an all-to-all agree on how many rows each sends to each. These are n² numbers, of which a rank needs
// 2n: nobody collects them. Where all ranks expect something, hashes show whether that is right (ADR 70); otherwise the
// ranks tell each other (row_exchange.h).

namespace gyre::engine::internal {

/// What ranks announce of their row counts: a hash of the counts that they send less one of those that they expect,
/// summed over these ranks (mod 2^64). If all ranks expect something and the sum is 0, each gets what it expects.
struct RowCounts {
  std::uint64_t difference = 0;
  std::uint32_t stated = 0;   ///< Ranks whose caller has said what it expects (Signature::expected_splits).
  std::uint32_t assumed = 0;  ///< Ranks that send the same to all ranks, and expect the same of each if that is right.

  RowCounts& operator+=(const RowCounts& other);
  friend bool operator==(const RowCounts&, const RowCounts&) = default;
};

/// Those of one rank; all zero unless it is an all-to-all.
RowCounts row_counts(const Signature& signature, int rank, int size);

/// How the ranks find out what they receive in an all-to-all. Stable numbers: they travel on the wire.
enum class RowKnowledge : std::uint8_t {
  kKnown = 0,      ///< What they expect.
  kExchanged = 1,  ///< They tell each other.
  kDisputed = 2,   ///< They tell each other, and some may have stated other expectations.
};

/// `counts`: of all of `size` ranks, without those that have joined.
RowKnowledge row_knowledge(const RowCounts& counts, int size);

/// Of an all-to-all: the rows of `shape[0]` for each rank, and those that it expects of each.
std::vector<std::int64_t> rows_to_each(const Signature& signature, int size);
std::vector<std::int64_t> expected_rows(const Signature& signature, int size);

}  // namespace gyre::engine::internal
