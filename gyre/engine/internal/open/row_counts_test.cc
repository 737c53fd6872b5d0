// Nobody sees all row counts of an all-to-all: hashes must tell agreement from every kind of disagreement.
#include "gyre/engine/internal/open/row_counts.h"

#include <gtest/gtest.h>

#include "gyre/base/random.h"

namespace gyre::engine::internal {
namespace {

using Matrix = std::vector<std::vector<std::int64_t>>;

enum class Expectation { kStated, kNone };

Signature signature_of(const Matrix& sent, const Matrix& expected, std::size_t rank, Expectation expectation) {
  Signature signature{.kind = OperationKind::kAllToAll, .shape = {0}, .splits = sent[rank]};
  for (const std::int64_t rows : sent[rank]) signature.shape[0] += rows;
  if (expectation == Expectation::kNone) return signature;
  for (const auto& row : expected) signature.expected_splits.push_back(row[rank]);
  return signature;
}

TEST(RowCountsTest, random_matrices_are_known_exactly_if_every_rank_expects_what_it_gets) {
  constexpr std::uint64_t kSeed = 26;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const std::size_t size = 1 + random.below(9);
    Matrix sent(size, std::vector<std::int64_t>(size));
    for (auto& row : sent) {
      for (std::int64_t& rows : row) rows = static_cast<std::int64_t>(random.below(3));
    }
    Matrix expected = sent;
    const bool wrong = random.below(2) == 0 && size > 1;
    if (wrong) {  // Also what keeps every sum of rows and columns.
      std::swap(expected[0][0], expected[1][0]);
      std::swap(expected[0][1], expected[1][1]);
      if (random.below(3) == 0) ++expected[random.below(size)][random.below(size)];
    }
    const bool some_expect_nothing = random.below(4) == 0;
    RowCounts all;
    std::uint32_t silent = 0;
    bool differs = false;
    for (std::size_t rank = 0; rank < size; ++rank) {
      const bool is_silent = some_expect_nothing && random.below(2) == 0;
      silent += is_silent ? 1 : 0;
      const auto expectation = is_silent ? Expectation::kNone : Expectation::kStated;
      const Signature signature = signature_of(sent, expected, rank, expectation);
      all += row_counts(signature, static_cast<int>(rank), static_cast<int>(size));
      const auto expects = expected_rows(signature, static_cast<int>(size));
      for (std::size_t other = 0; other < size; ++other) differs |= expects[other] != sent[other][rank];
    }
    const RowKnowledge found = row_knowledge(all, static_cast<int>(size));
    const bool all_expect = all.stated + all.assumed == size;
    if (all_expect) {
      EXPECT_EQ(found == RowKnowledge::kKnown, !differs) << round;
    }
    if (found != RowKnowledge::kKnown) {
      EXPECT_EQ(found == RowKnowledge::kExchanged, silent == size) << round;
    }
  }
}

TEST(RowCountsTest, ranks_that_send_alike_to_all_expect_the_same_without_saying_so) {
  constexpr int kSize = 4;
  RowCounts alike;
  RowCounts unlike;
  for (int rank = 0; rank < kSize; ++rank) {
    alike += row_counts({.kind = OperationKind::kAllToAll, .shape = {8, 3}}, rank, kSize);
    unlike += row_counts({.kind = OperationKind::kAllToAll, .shape = {8 + rank / 3 * kSize}}, rank, kSize);
  }
  EXPECT_EQ(row_knowledge(alike, kSize), RowKnowledge::kKnown);
  EXPECT_EQ(row_knowledge(unlike, kSize), RowKnowledge::kExchanged);
  // One has joined and announces nothing.
  EXPECT_EQ(row_knowledge(row_counts({.kind = OperationKind::kAllToAll, .shape = {4}}, 0, 2), 2),
            RowKnowledge::kExchanged);
}

TEST(RowCountsTest, other_operations_have_none) {
  EXPECT_EQ(row_counts({.kind = OperationKind::kAllgather, .shape = {4}}, 0, 2), RowCounts{});
}

}  // namespace
}  // namespace gyre::engine::internal
