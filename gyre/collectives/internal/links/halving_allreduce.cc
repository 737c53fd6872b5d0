#include "gyre/collectives/internal/links/halving_allreduce.h"

#include <memory>
#include <vector>

#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/links/wire_encoding.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/schedule/halving_doubling.h"

namespace gyre::collectives::internal {
namespace {

/// A range of the buffer, in bytes.
struct Stretch {
  std::size_t offset = 0;
  std::span<std::byte> bytes;
};

class Halving {
 public:
  Halving(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> buffer,
          const LinkReduction& reduction, const RingHooks& hooks)
      : lane_(lane),
        collective_(collective),
        team_(team),
        buffer_(buffer),
        reduction_(reduction),
        hooks_(hooks),
        steps_(halving_doubling_steps(team.place, team.size())),
        chunks_(even_chunks(reduction.elements_in(buffer.size()), halving_chunks(team.size()))),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(kPieceBytes)) {}

  void run() {
    std::vector<int> partners;
    for (const HalvingStep& step : steps_) partners.push_back(team_.rank_at(step.partner));
    open_links(lane_, partners);
    for (const HalvingStep& step : steps_) {
      std::vector<Outgoing> outgoing;
      std::vector<Incoming> incoming;
      if (step.send.count() > 0) outgoing.push_back(send(step));
      if (step.receive.count() > 0) incoming.push_back(receive(step));
      exchange(lane_, outgoing, incoming);
      is_prepared_ = true;  // Each rank's first step concerns its whole buffer.
    }
  }

 private:
  Stretch stretch_of(ChunkRange range) const {
    const std::size_t begin = chunks_[static_cast<std::size_t>(range.begin)].begin * size_of(reduction_.type);
    const std::size_t end = chunks_[static_cast<std::size_t>(range.end - 1)].end() * size_of(reduction_.type);
    return {begin, buffer_.subspan(begin, end - begin)};
  }

  Framing framing_of(const HalvingStep& step, const Stretch& stretch) const {
    const WireFormat sums = step.round == 0 ? reduction_.contributions : reduction_.sums;
    return {ring_piece_bytes(stretch.bytes.size()), step.reduce ? sums : reduction_.results};
  }

  FramePlace place_of(const HalvingStep& step) const { return {collective_, static_cast<std::uint32_t>(step.round)}; }

  void prepare(std::size_t offset_bytes, std::size_t size_bytes) const {
    if (!is_prepared_ && hooks_.prepare && size_bytes > 0) hooks_.prepare(offset_bytes, size_bytes);
  }
  void publish(std::size_t offset_bytes, std::size_t size_bytes) const {
    if (hooks_.publish && size_bytes > 0) hooks_.publish(offset_bytes, size_bytes);
  }

  Outgoing send(const HalvingStep& step) const {
    const Stretch stretch = stretch_of(step.send);
    const BeforeSending preparing = [this, start = stretch.offset](std::size_t offset, std::size_t size) {
      prepare(start + offset, size);
    };
    return {lane_,
            team_.rank_at(step.partner),
            place_of(step),
            stretch.bytes,
            nullptr,
            framing_of(step, stretch),
            is_prepared_ ? BeforeSending{} : preparing};
  }

  Incoming receive(const HalvingStep& step) {
    const Stretch stretch = stretch_of(step.receive);
    const Framing framing = framing_of(step, stretch);
    const int partner = team_.rank_at(step.partner);
    if (!step.reduce && !framing.encoded()) {
      const PieceSink arrived = [this, start = stretch.offset](std::size_t offset, std::span<const std::byte> payload) {
        publish(start + offset, payload.size());
      };
      return {lane_, partner, place_of(step), stretch.bytes, framing, arrived};
    }
    const std::span<std::byte> scratch(scratch_.get(), kPieceBytes);
    const PieceSink sink =
        step.reduce ? adding(stretch, framing, step.receive.count() == 1) : keeping(stretch, framing);
    return {lane_, partner, place_of(step), stretch.bytes.size(), scratch, sink, framing};
  }

  /// `last`: of the sum of a chunk that this rank owns.
  PieceSink adding(const Stretch& stretch, const Framing& framing, bool last) const {
    return [this, stretch, framing, last](std::size_t offset, std::span<const std::byte> payload) {
      const std::span<std::byte> own = stretch.bytes.subspan(offset, payload.size() * (framing.encoded() ? 2 : 1));
      prepare(stretch.offset + offset, own.size());
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
      publish(stretch.offset + offset, own.size());
    };
  }

  PieceSink keeping(const Stretch& stretch, const Framing& framing) const {
    return [this, stretch, framing](std::size_t offset, std::span<const std::byte> payload) {
      const std::span<std::byte> own = stretch.bytes.subspan(offset, payload.size() * 2);
      decode(own, payload, framing.wire);
      publish(stretch.offset + offset, own.size());
    };
  }

  group::Lane& lane_;
  std::uint64_t collective_;
  const Team& team_;
  std::span<std::byte> buffer_;
  const LinkReduction& reduction_;
  const RingHooks& hooks_;
  std::vector<HalvingStep> steps_;
  std::vector<ElementRange> chunks_;
  bool is_prepared_ = false;
  std::unique_ptr<std::byte[]> scratch_;  // For one piece.
};

}  // namespace

void allreduce_by_halving(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> sums,
                          const LinkReduction& reduction, const RingHooks& hooks) {
  Halving(lane, collective, team, sums, reduction, hooks).run();
}

}  // namespace gyre::collectives::internal
