#include "gyre/collectives/internal/links/link_collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/schedule/binomial_tree.h"
#include "gyre/collectives/schedule/bruck.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/schedule/pairwise.h"
#include "gyre/collectives/schedule/ring.h"

namespace gyre::collectives::internal {
namespace {

int next_of(const group::Lane& lane) { return (lane.rank() + 1) % lane.size(); }
int previous_of(const group::Lane& lane) { return (lane.rank() + lane.size() - 1) % lane.size(); }

/// Those of rounds in which every rank sends to rank + 2^k and receives from rank - 2^k.
std::vector<int> peers_at_powers_of_two(const group::Lane& lane) {
  std::vector<int> peers;
  for (int distance = 1; distance < lane.size(); distance *= 2) {
    peers.push_back((lane.rank() + distance) % lane.size());
    peers.push_back((lane.rank() + lane.size() - distance) % lane.size());
  }
  return peers;
}

template <typename Byte>
std::span<Byte> subgroup_of(std::span<Byte> buffer, const ElementRange& range) {
  return buffer.subspan(range.begin, range.count);
}

}  // namespace

void broadcast_over_links(group::Lane& lane, std::uint64_t collective, const Team& team, std::span<std::byte> buffer,
                          int root) {
  const auto root_place = std::find(team.ranks.begin(), team.ranks.end(), root) - team.ranks.begin();
  std::vector<TreeStep> steps = binomial_broadcast_steps(team.place, team.size(), static_cast<int>(root_place));
  std::vector<int> partners;
  for (TreeStep& step : steps) {
    step.partner = team.rank_at(step.partner);
    partners.push_back(step.partner);
  }
  open_links(lane, partners);

  // All steps at once: the sends of later rounds follow what the one receive has got.
  std::vector<Incoming> incoming;
  for (const TreeStep& step : steps) {
    const FramePlace place{collective, static_cast<std::uint32_t>(step.round)};
    if (!step.send) incoming.emplace_back(lane, step.partner, place, buffer);
  }
  const Incoming* source = incoming.empty() ? nullptr : &incoming.front();
  std::vector<Outgoing> outgoing;
  for (const TreeStep& step : steps) {
    const FramePlace place{collective, static_cast<std::uint32_t>(step.round)};
    if (step.send) outgoing.emplace_back(lane, step.partner, place, buffer, source);
  }
  exchange(lane, outgoing, incoming);
}

void allgather_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> own,
                          std::span<const std::size_t> sizes_bytes, std::span<std::byte> output) {
  open_links(lane, {next_of(lane), previous_of(lane)});
  const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
  const auto chunk = [&](int index) { return subgroup_of(output, places[index_of(index)]); };
  copy_bytes(chunk(lane.rank()).data(), own.data(), own.size());
  const std::vector<RingStep> steps = ring_allgather_steps(lane.rank(), lane.size());
  std::vector<Incoming> incoming;
  std::vector<Outgoing> outgoing;
  incoming.reserve(steps.size());  // Flows out point to flows in: what a step sends is what the one before received.
  outgoing.reserve(steps.size());
  for (const RingStep& step : steps) {
    const FramePlace place{collective, static_cast<std::uint32_t>(incoming.size())};
    const Incoming* source = incoming.empty() ? nullptr : &incoming.back();
    outgoing.emplace_back(lane, next_of(lane), place, chunk(step.send_chunk), source);
    incoming.emplace_back(lane, previous_of(lane), place, chunk(step.receive_chunk));
  }
  exchange(lane, outgoing, incoming);
}

void all_to_all_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::byte> input,
                           std::span<const std::size_t> send_bytes, std::span<std::byte> output,
                           std::span<const std::size_t> receive_bytes) {
  std::vector<int> peers;  // That have something for this rank or get something from it, which both ends know.
  for (int peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank()) continue;
    if (send_bytes[index_of(peer)] > 0 || receive_bytes[index_of(peer)] > 0) peers.push_back(peer);
  }
  open_links(lane, std::move(peers));
  const std::vector<ElementRange> from = ragged_chunks(send_bytes);
  const std::vector<ElementRange> to = ragged_chunks(receive_bytes);
  const std::size_t own = index_of(lane.rank());
  copy_bytes(subgroup_of(output, to[own]).data(), subgroup_of(input, from[own]).data(), to[own].count);
  std::uint32_t step_number = 0;
  for (const PairwiseStep& step : pairwise_steps(lane.rank(), lane.size())) {
    const FramePlace place{collective, step_number++};
    const std::span<const std::byte> sent = subgroup_of(input, from[index_of(step.send_to)]);
    const std::span<std::byte> received = subgroup_of(output, to[index_of(step.receive_from)]);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (!sent.empty()) outgoing.emplace_back(lane, step.send_to, place, sent);
    if (!received.empty()) incoming.emplace_back(lane, step.receive_from, place, received);
    if (!outgoing.empty() || !incoming.empty()) exchange(lane, outgoing, incoming);
  }
}

void exchange_numbers_over_links(group::Lane& lane, std::uint64_t collective, std::span<const std::int64_t> to_each,
                                 std::span<std::int64_t> from_each) {
  const int size = lane.size();
  const std::vector<BruckRound> rounds = bruck_rounds(size);
  open_links(lane, peers_at_powers_of_two(lane));
  std::vector<std::int64_t> blocks(to_each.size());
  for (int block = 0; block < size; ++block) blocks[index_of(block)] = to_each[index_of((lane.rank() + block) % size)];
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
  std::uint32_t round_number = 0;
  for (const BruckRound& round : rounds) {
    const FramePlace place{collective, round_number++};
    sent.clear();
    for (const int block : round.blocks) sent.push_back(blocks[index_of(block)]);
    received.resize(sent.size());
    Outgoing outgoing(lane, (lane.rank() + round.distance) % size, place, std::as_bytes(std::span(sent)));
    Incoming incoming(lane, (lane.rank() + size - round.distance) % size, place,
                      std::as_writable_bytes(std::span(received)));
    exchange(lane, {&outgoing, 1}, {&incoming, 1});
    for (std::size_t i = 0; i < round.blocks.size(); ++i) blocks[index_of(round.blocks[i])] = received[i];
  }
  for (int block = 0; block < size; ++block) {
    from_each[index_of((lane.rank() - block + size) % size)] = blocks[index_of(block)];
  }
}

void barrier_over_links(group::Lane& lane, std::uint64_t collective) {
  const int size = lane.size();
  open_links(lane, peers_at_powers_of_two(lane));
  std::uint32_t round = 0;
  for (int distance = 1; distance < size; distance *= 2) {
    const FramePlace place{collective, round++};
    Outgoing outgoing(lane, (lane.rank() + distance) % size, place, {});
    Incoming incoming(lane, (lane.rank() + size - distance) % size, place, std::span<std::byte>{});
    exchange(lane, {&outgoing, 1}, {&incoming, 1});
  }
}

}  // namespace gyre::collectives::internal
