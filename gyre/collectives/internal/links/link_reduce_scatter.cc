#include "gyre/collectives/internal/links/link_reduce_scatter.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/internal/links/wire_encoding.h"
#include "gyre/collectives/internal/shared/shared_collectives.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/schedule/ring.h"

namespace gyre::collectives::internal {
namespace {

template <typename Byte>
std::span<Byte> subspan_of(std::span<Byte> buffer, const ElementRange& range) {
  return buffer.subspan(range.begin, range.count);
}

std::size_t sums_bytes(std::size_t elements_bytes, const ReductionPlan& plan) {
  return plan.elements_in(elements_bytes) * size_of(plan.sum_type);
}

/// This member's partial sums of a chunk, which nobody else writes. Called once for each chunk.
using ChunkSums = std::function<std::span<std::byte>(int chunk)>;

/// A ring's first half among the members of a team: chunk p is summed up on its way to the member at place p. Returns
/// the finished sums of this member's chunk.
std::span<const std::byte> pass_sums_around(group::Lane& lane, std::uint64_t collective, const Team& team,
                                            const LinkReduction& reduction, const ChunkSums& own_sums,
                                            const std::function<void()>& note_progress) {
  open_links(lane, {team.next(), team.previous()});
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
  const std::vector<RingStep> steps = ring_reduce_scatter_steps(team.place, team.size());
  std::span<const std::byte> sending = own_sums(steps.front().send_chunk);
  std::uint32_t number = 0;
  for (const RingStep& step : steps) {
    const Framing framing{kPieceBytes, number == 0 ? reduction.contributions : reduction.sums};
    const std::span<std::byte> sums = own_sums(step.receive_chunk);
    const Scaling scaling = step.receive_chunk == team.place ? reduction.at_the_end : Scaling{};
    const PieceSink add = [&](std::size_t offset, std::span<const std::byte> piece) {
      if (framing.encoded()) {
        accumulate_encoded(sums.data() + offset, piece, framing.wire, reduction.operation, scaling);
      } else {
        accumulate(sums.data() + offset, piece.data(), reduction.elements_in(piece.size()), reduction.type,
                   reduction.operation, scaling);
      }
      if (note_progress) note_progress();
    };
    const FramePlace place{collective, number++};
    Outgoing outgoing(lane, team.next(), place, sending, nullptr, framing);
    Incoming incoming(lane, team.previous(), place, sums.size(), {scratch.get(), kPieceBytes}, add, framing);
    exchange(lane, {&outgoing, 1}, {&incoming, 1});
    sending = sums;
  }
  return sending;
}

}  // namespace

void reduce_scatter_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> input,
                               std::span<const std::size_t> sizes_bytes, std::span<std::byte> output,
                               const ReductionPlan& plan) {
  ReductionPlan native = plan;
  native.wire = WireFormat::kNative;
  const Team team = everybody(lane.topology());
  const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
  // The input stays as it is: partial sums go into one of two buffers while the other one is sent, and at the end into
  // the output.
  std::array<std::vector<std::byte>, 2> partial;
  const std::size_t longest = sums_bytes(*std::max_element(sizes_bytes.begin(), sizes_bytes.end()), native);
  for (std::vector<std::byte>& buffer : partial) buffer.resize(longest);
  std::size_t turn = 0;
  const ChunkSums contribution = [&](int chunk) {
    const std::span<const std::byte> own = subspan_of(input, places[index_of(chunk)]);
    const bool in_output = chunk == team.place && !native.widens();
    const std::span<std::byte> memory = in_output ? output : std::span(partial[turn++ % 2]);
    const std::span<std::byte> sums = memory.first(sums_bytes(own.size(), native));
    if (native.widens() || native.scaling.prescale != 1.0) {
      const std::array<const std::byte*, 1> sources{own.data()};
      add_up(sums.data(), sources, native.elements_in(own.size()), native);
    } else {
      copy_bytes(sums.data(), own.data(), own.size());
    }
    return sums;
  };
  narrow_sums(output, pass_sums_around(lane, collective, team, link_reduction(native, true), contribution, {}), native);
}

namespace {

/// The pieces of a reduce-scatter as several hosts see them: each host's chunk is the pieces of its ranks, in rank
/// order, dealt in slices. In bytes of the input's type.
class Slices {
 public:
  Slices(const group::Topology& topology, std::span<const std::size_t> sizes_bytes, std::size_t element_bytes)
      : topology_(topology), count_(fewest_on_a_host(topology)), element_bytes_(element_bytes) {
    const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
    for (const std::vector<int>& ranks : topology.hosts()) {
      std::vector<ElementRange>& pieces = pieces_.emplace_back();
      for (const int rank : ranks) pieces.push_back(places[index_of(rank)]);
    }
  }

  /// Slice `slice` of a host's chunk, as a range of the chunk.
  ElementRange slice_of(int host, int slice) const {
    std::size_t chunk_bytes = 0;
    for (const ElementRange& piece : pieces_[index_of(host)]) chunk_bytes += piece.count;
    const ElementRange elements = even_chunk(chunk_bytes / element_bytes_, count_, slice);
    return {elements.begin * element_bytes_, elements.count * element_bytes_};
  }

  /// The slice with this number of all hosts' chunks, end to end: as ranges of that, and of the input.
  std::vector<std::size_t> sizes_bytes(int slice) const {
    std::vector<std::size_t> sizes;
    for (int host = 0; host < hosts(); ++host) sizes.push_back(slice < count_ ? slice_of(host, slice).count : 0);
    return sizes;
  }
  std::vector<ElementRange> in_input(int slice) const {
    std::vector<ElementRange> ranges;
    for (int host = 0; slice < count_ && host < hosts(); ++host) {
      const ElementRange wanted = slice_of(host, slice);
      std::size_t begin = 0;
      for (const ElementRange& piece : pieces_[index_of(host)]) {
        const ElementRange part = common(wanted, {begin, piece.count});
        if (part.count > 0) ranges.push_back({piece.begin + part.begin - begin, part.count});
        begin += piece.count;
      }
    }
    return ranges;
  }

  /// How much of a slice of this host's chunk belongs to the piece of a local rank.
  std::size_t common_bytes(int slice, int local_rank) const {
    if (slice >= count_) return 0;
    std::size_t begin = 0;
    const std::vector<ElementRange>& pieces = pieces_[index_of(topology_.host_index())];
    for (int r = 0; r < local_rank; ++r) begin += pieces[index_of(r)].count;
    return common(slice_of(topology_.host_index(), slice), {begin, pieces[index_of(local_rank)].count}).count;
  }

 private:
  int hosts() const { return static_cast<int>(pieces_.size()); }

  static ElementRange common(const ElementRange& a, const ElementRange& b) {
    const std::size_t begin = std::max(a.begin, b.begin);
    const std::size_t end = std::min(a.end(), b.end());
    return end > begin ? ElementRange{begin, end - begin} : ElementRange{};
  }

  const group::Topology& topology_;
  int count_;
  std::size_t element_bytes_;
  std::vector<std::vector<ElementRange>> pieces_;  // By host and local rank, as ranges of the input.
};

std::size_t total_of(std::span<const std::size_t> sizes) {
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  return total;
}

/// Reads ranges of a buffer as if they lay end to end, from front to back.
class Gathered {
 public:
  Gathered(std::span<const std::byte> buffer, std::vector<ElementRange> ranges)
      : buffer_(buffer), ranges_(std::move(ranges)) {}

  /// `begin` is where the last copy ended.
  void copy(std::byte* to, std::size_t begin, std::size_t size) {
    GYRE_CHECK(begin == read_);
    for (read_ += size; size > 0;) {
      const ElementRange& range = ranges_.at(index_);
      const std::size_t length = std::min(size, range.count - in_range_);
      copy_for_others(to, buffer_.data() + range.begin + in_range_, length);
      to += length;
      size -= length;
      in_range_ += length;
      if (in_range_ < range.count) continue;
      in_range_ = 0;
      ++index_;
    }
  }

 private:
  std::span<const std::byte> buffer_;
  std::vector<ElementRange> ranges_;
  std::size_t read_ = 0;
  std::size_t index_ = 0;  // Of the present range,
  std::size_t in_range_ = 0;
};

/// This rank's slice of all hosts' chunks, summed over the ranks of this host.
std::vector<std::byte> sums_of_host(SharedRoom& room, std::span<const std::byte> input, const Slices& slices,
                                    const ReductionPlan& plan) {
  std::vector<Gathered> contributions;
  std::vector<std::size_t> totals_bytes;
  for (int r = 0; r < room.size(); ++r) {
    contributions.emplace_back(input, slices.in_input(r));
    totals_bytes.push_back(total_of(slices.sizes_bytes(r)));
  }
  std::vector<std::byte> sums(sums_bytes(totals_bytes[index_of(room.rank())], plan));
  const ContributionCopy copy = [&](std::byte* to, int owner, std::size_t begin, std::size_t size) {
    contributions[index_of(owner)].copy(to, begin, size);
  };
  add_up_shared(room, copy, totals_bytes, sums, plan);
  return sums;
}

/// From the finished slices of this host's chunk, of which `own_slice` is this rank's, to the ranks' pieces.
void hand_out(SharedRoom& room, std::span<const std::byte> own_slice, const Slices& slices,
              std::span<std::byte> output) {
  if (room.size() == 1) return copy_bytes(output.data(), own_slice.data(), output.size());
  std::vector<std::size_t> send_bytes;
  std::vector<std::size_t> receive_bytes;
  for (int r = 0; r < room.size(); ++r) {
    send_bytes.push_back(slices.common_bytes(room.rank(), r));
    receive_bytes.push_back(slices.common_bytes(r, room.rank()));
  }
  all_to_all_shared(room, own_slice, send_bytes, output, receive_bytes);
}

}  // namespace

void reduce_scatter_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                             std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                             std::span<std::byte> output, const ReductionPlan& plan) {
  ReductionPlan native = plan;
  native.wire = WireFormat::kNative;
  const Slices slices(lane.topology(), sizes_bytes, size_of(native.type));
  std::vector<std::byte> sums = sums_of_host(room, input, slices, native);
  std::vector<std::byte> finished;
  if (!sums.empty()) {
    std::vector<std::size_t> chunk_bytes = slices.sizes_bytes(room.rank());
    finished.resize(chunk_bytes[index_of(lane.topology().host_index())]);
    for (std::size_t& bytes : chunk_bytes) bytes = sums_bytes(bytes, native);
    const ChunkSums own_sums = [&, chunks = ragged_chunks(chunk_bytes)](int chunk) {
      return subspan_of(std::span(sums), chunks[index_of(chunk)]);
    };
    narrow_sums(finished,
                pass_sums_around(lane, collective, counterparts(lane.topology()), link_reduction(native, false),
                                 own_sums, [&] { room.note_progress(); }),
                native);
  }
  hand_out(room, finished, slices, output);
}

}  // namespace gyre::collectives::internal
