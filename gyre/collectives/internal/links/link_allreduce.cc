#include "gyre/collectives/internal/links/link_allreduce.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/links/halving_allreduce.h"
#include "gyre/collectives/internal/links/wire_encoding.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/schedule/recursive_doubling.h"
#include "gyre/collectives/schedule/ring.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::size_t kLeastPieceBytes = std::size_t{16} * 1024;
constexpr std::size_t kPiecesPerChunk = 8;

/// Uninitialised memory: what is received into is not worth clearing first.
struct Scratch {
  explicit Scratch(std::size_t size_bytes)
      : memory(std::make_unique_for_overwrite<std::byte[]>(size_bytes)), bytes(memory.get(), size_bytes) {}
  std::unique_ptr<std::byte[]> memory;
  std::span<std::byte> bytes;
};

/// One ring-allreduce of one rank. The flows of all its steps are handed to exchange() together: what a step sends is
/// what the step before received, so each flow out follows one in.
class Ring {
 public:
  Ring(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> buffer,
       const LinkReduction& reduction, const RingHooks& hooks)
      : lane_(lane),
        collective_(collective),
        team_(team),
        buffer_(buffer),
        reduction_(reduction),
        hooks_(hooks),
        chunks_(even_chunks(reduction.elements_in(buffer.size()), team.size())),
        // The first chunk is a longest one.
        piece_bytes_(ring_piece_bytes(chunks_[0].count * size_of(reduction.type))),
        scratch_(std::min(piece_bytes_, bytes_of(0).size())) {}

  void run() {
    const std::vector<RingStep> steps = ring_allreduce_steps(team_.place, team_.size());
    std::vector<Incoming> incoming;
    std::vector<Outgoing> outgoing;
    incoming.reserve(steps.size());  // Flows out point to flows in.
    outgoing.reserve(steps.size());
    std::uint32_t number = 0;
    for (const RingStep& step : steps) {
      const FramePlace place{collective_, number};
      const bool first = number == 0;
      GYRE_CHECK((first || step.send_chunk == steps[number - 1].receive_chunk));
      const Framing framing{piece_bytes_, format_of(step, first)};
      outgoing.emplace_back(lane_, team_.next(), place, bytes_of(step.send_chunk), first ? nullptr : &incoming.back(),
                            framing, first ? preparing(step.send_chunk) : BeforeSending{});
      incoming.push_back(receive(step, place, framing));
      ++number;
    }
    exchange(lane_, outgoing, incoming);
  }

 private:
  WireFormat format_of(const RingStep& step, bool first) const {
    if (!step.reduce) return reduction_.results;
    return first ? reduction_.contributions : reduction_.sums;
  }

  std::size_t offset_of(int chunk) const {
    return chunks_[static_cast<std::size_t>(chunk)].begin * size_of(reduction_.type);
  }

  std::span<std::byte> bytes_of(int chunk) const {
    return buffer_.subspan(offset_of(chunk), chunks_[static_cast<std::size_t>(chunk)].count * size_of(reduction_.type));
  }

  static std::size_t decoded_bytes(std::size_t payload_bytes, const Framing& framing) {
    return framing.encoded() ? payload_bytes * 2 : payload_bytes;
  }

  void prepare(std::size_t offset_bytes, std::size_t size_bytes) const {
    if (hooks_.prepare && size_bytes > 0) hooks_.prepare(offset_bytes, size_bytes);
  }
  void publish(std::size_t offset_bytes, std::size_t size_bytes) const {
    if (hooks_.publish && size_bytes > 0) hooks_.publish(offset_bytes, size_bytes);
  }

  BeforeSending preparing(int chunk) const {
    return [this, start = offset_of(chunk)](std::size_t offset, std::size_t size) { prepare(start + offset, size); };
  }

  Incoming receive(const RingStep& step, FramePlace place, const Framing& framing) {
    const std::span<std::byte> chunk = bytes_of(step.receive_chunk);
    const PieceSink sink = step.reduce ? adding(step.receive_chunk, framing) : keeping(step.receive_chunk, framing);
    if (!step.reduce && !framing.encoded()) return {lane_, team_.previous(), place, chunk, framing, sink};
    return {lane_, team_.previous(), place, chunk.size(), scratch_.bytes, sink, framing};
  }

  PieceSink adding(int chunk, const Framing& framing) const {
    return [this, chunk, framing, start = offset_of(chunk)](std::size_t offset, std::span<const std::byte> payload) {
      const std::span<std::byte> own = buffer_.subspan(start + offset, decoded_bytes(payload.size(), framing));
      prepare(start + offset, own.size());
      // The owner's sum is the last one, and the only one that is scaled.
      const bool last = chunk == team_.place;
      const Scaling scaling = last ? reduction_.at_the_end : Scaling{};
      if (framing.encoded()) {
        accumulate_encoded(own.data(), payload, framing.wire, reduction_.operation, scaling);
      } else {
        accumulate(own.data(), payload.data(), reduction_.elements_in(own.size()), reduction_.type,
                   reduction_.operation, scaling);
      }
      if (!last) return;
      // The others get it rounded.
      if (reduction_.results != WireFormat::kNative) round_to_wire(own, reduction_.results);
      publish(start + offset, own.size());
    };
  }

  PieceSink keeping(int chunk, const Framing& framing) const {
    return [this, framing, start = offset_of(chunk)](std::size_t offset, std::span<const std::byte> payload) {
      const std::span<std::byte> own = buffer_.subspan(start + offset, decoded_bytes(payload.size(), framing));
      if (framing.encoded()) decode(own, payload, framing.wire);
      publish(start + offset, own.size());
    };
  }

  group::Lane& lane_;
  std::uint64_t collective_;
  const Team& team_;
  std::span<std::byte> buffer_;
  const LinkReduction& reduction_;
  const RingHooks& hooks_;
  std::vector<ElementRange> chunks_;
  std::size_t piece_bytes_;
  Scratch scratch_;  // For one piece: the flows in come one after the other.
};

/// One recursive doubling of one rank.
class Doubling {
 public:
  Doubling(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> buffer,
           const LinkReduction& reduction)
      : lane_(lane),
        collective_(collective),
        team_(team),
        buffer_(buffer),
        reduction_(reduction),
        arrived_(buffer.size()),
        payload_(std::min(buffer.size(), kPieceBytes)) {}

  void run() {
    const std::vector<DoublingStep> steps = recursive_doubling_steps(team_.place, team_.size());
    std::vector<int> partners;
    for (const DoublingStep& step : steps) partners.push_back(team_.rank_at(step.partner));
    open_links(lane_, partners);
    bool finished = false;
    for (const DoublingStep& step : steps) {
      const bool hands_result_back = step.send && !step.receive() && step.round > 0;
      const bool of_results = hands_result_back || step.combine == Combine::kReplace;
      const WireFormat format = format_of(step, of_results);
      if (hands_result_back) {
        finish();
        finished = true;
      } else if (step.send && format != WireFormat::kNative) {
        round_to_wire(buffer_, format);  // Both sides combine what both have.
      }
      move(step, {kPieceBytes, format});
      combine(step);
      finished = finished || step.combine == Combine::kReplace;
    }
    if (!finished) finish();
  }

 private:
  WireFormat format_of(const DoublingStep& step, bool of_results) const {
    if (of_results) return reduction_.results;
    return step.round == 0 ? reduction_.contributions : reduction_.sums;
  }

  void move(const DoublingStep& step, const Framing& framing) {
    const FramePlace place{collective_, static_cast<std::uint32_t>(step.round)};
    const int partner = team_.rank_at(step.partner);
    const PieceSink decode_there = [this, framing](std::size_t offset, std::span<const std::byte> payload) {
      decode(arrived_.bytes.subspan(offset, payload.size() * 2), payload, framing.wire);
    };
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (step.send) outgoing.emplace_back(lane_, partner, place, buffer_, nullptr, framing);
    // Not into the buffer itself: it is being sent.
    if (step.receive() && framing.encoded()) {
      incoming.emplace_back(lane_, partner, place, buffer_.size(), payload_.bytes, decode_there, framing);
    } else if (step.receive()) {
      incoming.emplace_back(lane_, partner, place, arrived_.bytes);
    }
    exchange(lane_, outgoing, incoming);
  }

  void combine(const DoublingStep& step) {
    if (step.combine == Combine::kReplace) {
      std::copy(arrived_.bytes.begin(), arrived_.bytes.end(), buffer_.begin());
    } else if (step.receive()) {
      const std::byte* arrived = arrived_.bytes.data();
      const bool own_first = step.combine == Combine::kOwnFirst;
      const std::array<const std::byte*, 2> sources{own_first ? buffer_.data() : arrived,
                                                    own_first ? arrived : buffer_.data()};
      reduce(buffer_.data(), sources, reduction_.elements_in(buffer_.size()), reduction_.type, reduction_.operation);
    }
  }

  /// All ranks that come here hold the same bits, so all may scale for themselves.
  void finish() {
    if (reduction_.at_the_end != Scaling{}) {
      scale_in_place(buffer_.data(), reduction_.elements_in(buffer_.size()), reduction_.type, reduction_.at_the_end);
    }
    if (reduction_.results != WireFormat::kNative) round_to_wire(buffer_, reduction_.results);
  }

  group::Lane& lane_;
  std::uint64_t collective_;
  const Team& team_;
  std::span<std::byte> buffer_;
  const LinkReduction& reduction_;
  Scratch arrived_;
  Scratch payload_;  // For one encoded piece.
};

}  // namespace

std::size_t ring_piece_bytes(std::size_t chunk_bytes) {
  const std::size_t even = (chunk_bytes / kPiecesPerChunk + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  return std::clamp(even, kLeastPieceBytes, kPieceBytes);
}

LinkReduction link_reduction(const ReductionPlan& plan, bool of_ranks) {
  LinkReduction reduction{.type = plan.sum_type,
                          .operation = plan.operation,
                          .at_the_end = plan.at_the_end(),
                          .contributions = plan.wire,
                          .sums = plan.wire,
                          .results = plan.wire};
  if (!plan.of_halves()) return reduction;
  reduction.results = plan.type == DataType::kFloat16 ? WireFormat::kFloat16 : WireFormat::kBfloat16;
  if (of_ranks && plan.scaling.prescale == 1.0) reduction.contributions = reduction.results;  // Which rounds nothing.
  return reduction;
}

void allreduce_by_ring(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                       const LinkReduction& reduction, const RingHooks& hooks) {
  open_links(lane, {team.next(), team.previous()});
  Ring(lane, collective, team, sums, reduction, hooks).run();
}

void allreduce_by_doubling(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                           const LinkReduction& reduction) {
  Doubling(lane, collective, team, sums, reduction).run();
}

void allreduce_in_chunks(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                         const LinkReduction& reduction, LinkSchedule schedule, const RingHooks& hooks) {
  GYRE_CHECK(schedule != LinkSchedule::kDoubling);
  if (schedule == LinkSchedule::kRing) return allreduce_by_ring(lane, collective, team, sums, reduction, hooks);
  allreduce_by_halving(lane, collective, team, sums, reduction, hooks);
}

void allreduce_all_in_chunks(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                             const ReductionPlan& plan, LinkSchedule schedule) {
  const PartialSums sums(buffer, plan);
  const RangeHook take = [&](std::size_t offset, std::size_t size) { sums.take(offset, size); };
  const RangeHook give = [&](std::size_t offset, std::size_t size) { sums.give(offset, size); };
  allreduce_in_chunks(lane, collective, everybody(lane.topology()), sums.bytes(), link_reduction(plan, true), schedule,
                      {.prepare = take, .publish = give});
}

void allreduce_all_by_doubling(group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer,
                               const ReductionPlan& plan) {
  const PartialSums sums(buffer, plan);
  sums.take(0, sums.bytes().size());
  allreduce_by_doubling(lane, collective, everybody(lane.topology()), sums.bytes(), link_reduction(plan, true));
  sums.give(0, sums.bytes().size());
}

}  // namespace gyre::collectives::internal
