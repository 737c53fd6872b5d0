// Announcements and orders come from other hosts: any bytes must become a valid announcement or order, or be refused.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gyre/base/error.h"
#include "gyre/engine/internal/open/aggregator.h"
#include "gyre/engine/internal/open/coordinator.h"
#include "gyre/engine/internal/open/negotiation.h"
#include "gyre/engine/internal/open/signature_check.h"

namespace {

using namespace gyre::engine;

constexpr int kSize = 3;
constexpr int kRank = 1;

template <typename Read>
void must_be_read_or_refused(const Read& read) {
  try {
    read();
  } catch (const gyre::Error& error) {
    if (error.code() != gyre::ErrorCode::kProtocol) std::abort();
  }
}

/// All ranks announce the same: what survives the checks is ordered, and the order must fit what was announced.
void announce(std::span<const std::byte> bytes) {
  internal::Coordinator coordinator({kSize, 1 << 20});
  const auto now = gyre::SteadyClock::now();
  for (int rank = 0; rank < kSize; ++rank) {
    internal::AnnouncementDecoder decoder;
    const auto content = decoder.decode(bytes);
    internal::check_speaker({rank, {rank}}, content);
    for (const internal::Announced& operation : content.operations) coordinator.announce(rank, operation, now);
    for (const internal::PlanStep& step : content.steps) coordinator.begin_step(rank, step);
    for (const internal::DisputedRows& disputed : content.disputes) coordinator.dispute(rank, disputed);
    if (content.join) coordinator.join(rank, *content.join);
    if (content.leaving) coordinator.depart(rank);
  }
  static_cast<void>(coordinator.stalls(now, std::chrono::milliseconds{0}));
  internal::check_order(coordinator.take_order(), kSize);
}

/// What an inner rank makes of it must be readable at its parent.
void pass_on(std::span<const std::byte> bytes) {
  const internal::NegotiationPlace::Child child{1, {1, 2}};
  internal::AnnouncementDecoder decoder;
  internal::Aggregator aggregator({0, 1, 2});
  const auto now = gyre::SteadyClock::now();
  aggregator.take(child, decoder.decode(bytes), now);
  const auto content = aggregator.next_announcement(now + internal::Aggregator::kPatience);
  if (!content) return;
  internal::AnnouncementDecoder parent;
  const auto received = parent.decode(internal::AnnouncementEncoder().encode(*content));
  internal::check_speaker({0, {0, 1, 2}}, received);
}

void obey(std::span<const std::byte> bytes) {
  internal::OrderDecoder decoder;
  const internal::Order order = decoder.decode(bytes);
  internal::check_order(order, kSize);
  const Signature gather{.kind = OperationKind::kAllgather, .shape = {2, 3}};
  const Signature exchange{.kind = OperationKind::kAllToAll, .shape = {3}, .splits = {1, 0, 2}};
  for (const internal::Bucket& bucket : order.buckets) {
    for (const internal::OrderedOperation& operation : bucket) {
      must_be_read_or_refused([&] { internal::check_sizes(operation, gather, kRank, kSize, true); });
      must_be_read_or_refused([&] { internal::check_sizes(operation, exchange, kRank, kSize, true); });
      if (!operation.signature) continue;
      must_be_read_or_refused([&] { internal::check_sizes(operation, *operation.signature, kRank, kSize, false); });
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  must_be_read_or_refused([&] { announce(bytes); });
  must_be_read_or_refused([&] { pass_on(bytes); });
  must_be_read_or_refused([&] { obey(bytes); });
  return 0;
}
