#include "gyre/engine/internal/open/row_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <span>

#include "gyre/base/error.h"
#include "gyre/collectives/collectives.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/row_counts.h"
#include "gyre/engine/internal/open/signature_check.h"

namespace gyre::engine::internal {

namespace {

/// Lists in messages are cut here.
constexpr std::size_t kMostCountsShown = 64;

std::string shown(std::span<const std::int64_t> counts) {
  if (counts.size() <= kMostCountsShown) return fmt::format("[{}]", fmt::join(counts, ", "));
  return fmt::format("[{}, … of {}]", fmt::join(counts.first(kMostCountsShown), ", "), counts.size());
}

}  // namespace

RowsOfRank exchanged_rows(group::Lane& lane, const Signature& signature, const std::string& name) {
  RowsOfRank rows;
  rows.sent = rows_to_each(signature, lane.size());
  rows.received = collectives::exchange_numbers(lane, rows.sent);
  if (!has_size(signature.shape, rows.received)) {
    throw Error(ErrorCode::kProtocol, fmt::format("the other ranks' row counts {} do not fit {} of {}",
                                                  shown(rows.received), describe_operation(signature.kind, name),
                                                  describe_tensor(signature.type, signature.shape)));
  }
  return rows;
}

std::optional<RowDispute> find_dispute(group::Lane& lane, const Signature& signature, const std::string& name) {
  const auto ranks = static_cast<std::size_t>(lane.size());
  const auto received = collectives::exchange_numbers(lane, rows_to_each(signature, lane.size()));
  const auto& expected = signature.expected_splits;
  // Pairs of ranks are numbered receiver · n + sender.
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = kNone;
  for (std::size_t sender = 0; sender < expected.size() && first == kNone; ++sender) {
    if (received[sender] == expected[sender]) continue;
    first = static_cast<std::int64_t>(static_cast<std::size_t>(lane.rank()) * ranks + sender);
  }
  collectives::allreduce(lane, std::as_writable_bytes(std::span(&first, 1)), {DataType::kInt64, ReduceOperation::kMin});
  if (first == kNone) return std::nullopt;
  if (first < 0 || first >= static_cast<std::int64_t>(ranks * ranks)) {
    throw Error(ErrorCode::kProtocol, fmt::format("pair {} of {} ranks", first, ranks));
  }
  RowDispute dispute{static_cast<int>(first % lane.size()), static_cast<int>(first / lane.size()), {}};
  // For the message.
  std::vector<std::int64_t> sent = rows_to_each(signature, lane.size());
  collectives::broadcast(lane, std::as_writable_bytes(std::span(sent)), dispute.sender);
  if (lane.rank() != dispute.receiver) return dispute;
  const auto number = [&](int rank) { return lane.topology().member(rank).rank_in_job.value_or(rank); };
  const int sender = number(dispute.sender);
  const int receiver = number(dispute.receiver);
  const std::int64_t wanted = expected[static_cast<std::size_t>(dispute.sender)];
  dispute.message = fmt::format(
      "the ranks disagree about {}: rank {} sends {} elements to rank {}, which expects {} from it; a rank's "
      "input splits must be the other ranks' output splits (rank {} sends {}, rank {} expects {})",
      shown_name(name), sender, received[static_cast<std::size_t>(dispute.sender)], receiver, wanted, sender,
      shown(sent), receiver, shown(expected));
  return dispute;
}

}  // namespace gyre::engine::internal
