#include "gyre/collectives/internal/link_allreduce.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "gyre/collectives/internal/exchange.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/schedule/recursive_doubling.h"
#include "gyre/collectives/schedule/ring.h"

namespace gyre::collectives::internal {
namespace {

/// Uninitialised memory: what is received into is not worth clearing first.
struct Scratch {
  explicit Scratch(std::size_t size_bytes) : bytes(std::make_unique_for_overwrite<std::byte[]>(size_bytes)) {}
  std::unique_ptr<std::byte[]> bytes;
};

}  // namespace

void allreduce_by_ring(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                       const ReductionPlan& plan) {
  const int size = lane.size();
  const int next = (lane.rank() + 1) % size;
  const int previous = (lane.rank() + size - 1) % size;
  open_links(lane, {next, previous});

  const std::size_t element_bytes = size_of(plan.type);
  const std::vector<ElementRange> chunks = even_chunks(plan.elements_in(buffer.size()), size);
  const auto bytes_of = [&](int chunk) {
    const ElementRange range = chunks[static_cast<std::size_t>(chunk)];
    return buffer.subspan(range.begin * element_bytes, range.count * element_bytes);
  };
  const std::size_t scratch_bytes = std::min(kSegmentBytes, bytes_of(0).size());  // The first chunk is a longest one.
  const Scratch scratch(scratch_bytes);

  std::uint32_t step_number = 0;
  for (const RingStep& step : ring_allreduce_steps(lane.rank(), size)) {
    const FramePlace place{collective, step_number};
    const std::span<std::byte> arriving = bytes_of(step.receive_chunk);
    // The owner's sum is the last one, and the only one that is scaled.
    const double scale = step.receive_chunk == lane.rank() ? plan.scale : 1.0;
    const SegmentSink add = [&](std::size_t offset, std::span<const std::byte> segment) {
      accumulate(arriving.data() + offset, segment.data(), plan.elements_in(segment.size()), plan.type, plan.operation,
                 scale);
    };
    Outgoing outgoing(lane, next, place, bytes_of(step.send_chunk));
    Incoming incoming =
        step.reduce ? Incoming(lane, previous, place, arriving.size(), {scratch.bytes.get(), scratch_bytes}, add)
                    : Incoming(lane, previous, place, arriving);
    exchange(lane, {&outgoing, 1}, {&incoming, 1});
    ++step_number;
  }
}

void allreduce_by_doubling(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                           const ReductionPlan& plan) {
  const std::vector<DoublingStep> steps = recursive_doubling_steps(lane.rank(), lane.size());
  std::vector<int> partners;
  for (const DoublingStep& step : steps) partners.push_back(step.partner);
  open_links(lane, partners);

  const Scratch scratch(buffer.size());
  const std::span<std::byte> arrived(scratch.bytes.get(), buffer.size());
  const std::size_t count = plan.elements_in(buffer.size());
  for (const DoublingStep& step : steps) {
    const FramePlace place{collective, static_cast<std::uint32_t>(step.round)};
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (step.send) outgoing.emplace_back(lane, step.partner, place, buffer);
    // Not into the buffer itself: it is being sent.
    if (step.receive()) incoming.emplace_back(lane, step.partner, place, arrived);
    exchange(lane, outgoing, incoming);
    if (step.combine == Combine::kReplace) {
      std::copy(arrived.begin(), arrived.end(), buffer.begin());
    } else if (step.receive()) {
      const bool own_first = step.combine == Combine::kOwnFirst;
      const std::array<const std::byte*, 2> sources{own_first ? buffer.data() : arrived.data(),
                                                    own_first ? arrived.data() : buffer.data()};
      reduce(buffer.data(), sources, count, plan.type, plan.operation);
    }
  }
  // All ranks hold the same bits here, so all may scale for themselves.
  if (plan.scale != 1.0) scale_in_place(buffer.data(), count, plan.type, plan.scale);
}

}  // namespace gyre::collectives::internal
