#include "gyre/engine/internal/open/row_counts.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "gyre/base/checksum.h"

namespace gyre::engine::internal {

namespace {

/// Of the statement that `sender` sends `receiver` so many rows; 0 if these are none, so that sparse exchanges (a
/// gather) cost little.
std::uint64_t hash_of(int sender, int receiver, std::int64_t rows) {
  if (rows == 0) return 0;
  const std::int64_t statement[] = {sender, receiver, rows};
  return xxh3_64(std::as_bytes(std::span(statement)));
}

bool sends_evenly(const Signature& signature, int size) {
  if (signature.splits.empty()) return true;
  return std::ranges::all_of(signature.splits, [&](std::int64_t rows) { return rows == signature.splits.front(); }) &&
         std::ssize(signature.splits) == size;
}

}  // namespace

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  difference += other.difference;
  stated += other.stated;
  assumed += other.assumed;
  return *this;
}

RowCounts row_counts(const Signature& signature, int rank, int size) {
  RowCounts counts;
  if (signature.kind != OperationKind::kAllToAll) return counts;
  counts.stated = signature.expected_splits.empty() ? 0 : 1;
  counts.assumed = counts.stated == 0 && sends_evenly(signature, size) ? 1 : 0;
  if (counts.stated == 0 && counts.assumed == 0) return counts;  // The others' sums are of no use then.
  const auto sent = rows_to_each(signature, size);
  const auto expected = expected_rows(signature, size);
  for (int other = 0; other < size; ++other) {
    const auto index = static_cast<std::size_t>(other);
    counts.difference += hash_of(rank, other, sent[index]);
    counts.difference -= hash_of(other, rank, expected[index]);
  }
  return counts;
}

RowKnowledge row_knowledge(const RowCounts& counts, int size) {
  const std::uint64_t expecting = std::uint64_t{counts.stated} + counts.assumed;
  if (expecting == static_cast<std::uint64_t>(size) && counts.difference == 0) return RowKnowledge::kKnown;
  return counts.stated > 0 ? RowKnowledge::kDisputed : RowKnowledge::kExchanged;
}

std::vector<std::int64_t> rows_to_each(const Signature& signature, int size) {
  if (!signature.splits.empty()) return signature.splits;
  return std::vector<std::int64_t>(static_cast<std::size_t>(size), signature.shape.at(0) / size);
}

std::vector<std::int64_t> expected_rows(const Signature& signature, int size) {
  return signature.expected_splits.empty() ? rows_to_each(signature, size) : signature.expected_splits;
}

}  // namespace gyre::engine::internal
