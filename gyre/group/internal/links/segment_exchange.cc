#include "gyre/group/internal/links/segment_exchange.h"

#include <fmt/format.h>
#include <poll.h>

#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/group/internal/links/waits.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

constexpr std::byte kMapped{1};
constexpr std::byte kAllMapped{2};
constexpr std::byte kAllCollected{3};
constexpr std::byte kNotCollected{4};
constexpr std::byte kReceived{5};
/// The descriptor is there when it is asked for; this only bounds a bug of the other side.
constexpr std::chrono::milliseconds kDescriptorTimeout{5'000};

/// Both sides tell their size, so that both can name the difference.
void compare_sizes(net::Stream& stream, const Topology& topology, std::size_t size_bytes, GroupState& state,
                   Deadline deadline) {
  ByteWriter writer;
  writer.u64(size_bytes);
  write_exactly(stream, writer.result(), state, deadline);
  Bytes theirs(sizeof(std::uint64_t));
  read_exactly(stream, theirs, state, deadline);
  const std::uint64_t their_bytes = ByteReader(theirs, "a segment's size").u64();
  if (their_bytes == size_bytes) return;
  throw Error(ErrorCode::kMismatch,
              fmt::format("rank {} wants to share {} bytes of memory, {} wants {}; the ranks of a host must ask for "
                          "the same size",
                          topology.rank(), size_bytes, stream.peer(), their_bytes));
}

[[noreturn]] void throw_unexpected(const net::Stream& stream, std::byte received, std::byte expected) {
  throw Error(ErrorCode::kProtocol, fmt::format("{} sent byte {} instead of {} while sharing memory", stream.peer(),
                                                std::to_integer<int>(received), std::to_integer<int>(expected)));
}

void expect(net::Stream& stream, std::byte expected, GroupState& state, Deadline deadline) {
  std::byte received{};
  read_exactly(stream, {&received, 1}, state, deadline);
  if (received != expected) throw_unexpected(stream, received, expected);
}

/// The lowest rank's end of a connection for an exchange.
std::unique_ptr<net::Stream> take_from(const Topology& topology, int peer, std::uint64_t channel, GroupState& state,
                                       Deadline deadline) {
  LinkConnection connection = state.take_link({peer, Purpose::kSegment, channel}, topology, deadline);
  if (net::leaves_host(connection.socket.get())) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} wants to share memory from another host", topology.describe(peer)));
  }
  return net::make_socket_stream(std::move(connection.socket), topology.describe(peer));
}

/// Empty where this process has no room for another descriptor.
UniqueFd receive_if_there_is_room(const net::Stream& stream, GroupState& state, Deadline deadline) {
  wait_for(stream.fd(), POLLIN, state, deadline, stream.peer());
  try {
    return net::receive_descriptor(stream.fd(), Deadline::after(kDescriptorTimeout));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    return {};
  }
}

std::shared_ptr<net::Segment> hand_out(const Topology& topology, const std::vector<int>& ranks, std::uint64_t channel,
                                       std::size_t size_bytes, GroupState& state, Deadline deadline) {
  auto segment = net::Segment::create(size_bytes);
  std::vector<std::unique_ptr<net::Stream>> streams;
  for (const int peer : ranks) {
    if (peer == topology.rank()) continue;
    streams.push_back(take_from(topology, peer, channel, state, deadline));
    compare_sizes(*streams.back(), topology, size_bytes, state, deadline);
    net::send_descriptor(streams.back()->fd(), segment->descriptor(), Deadline::after(kDescriptorTimeout));
  }
  for (const auto& stream : streams) expect(*stream, kMapped, state, deadline);
  for (const auto& stream : streams) write_exactly(*stream, {&kAllMapped, 1}, state, deadline);
  return segment;
}

std::shared_ptr<net::Segment> receive(const Topology& topology, int leader, const net::JobKey& key,
                                      const net::Hello& hello, std::size_t size_bytes, GroupState& state,
                                      Deadline deadline) {
  UniqueFd connection = connect_to_peer(topology, leader, key, hello, state, deadline).socket;
  const auto stream = net::make_socket_stream(std::move(connection), topology.describe(leader));
  compare_sizes(*stream, topology, size_bytes, state, deadline);
  wait_for(stream->fd(), POLLIN, state, deadline, stream->peer());
  auto segment =
      net::Segment::map(net::receive_descriptor(stream->fd(), Deadline::after(kDescriptorTimeout)), size_bytes);
  write_exactly(*stream, {&kMapped, 1}, state, deadline);
  expect(*stream, kAllMapped, state, deadline);
  return segment;
}

/// The lowest rank's part: collects the descriptors, then hands them to one rank after the other, so that few are under
/// way at a time (the system counts them against the limit of open files).
std::vector<UniqueFd> collect_and_hand_out(const Topology& topology, const std::vector<int>& ranks,
                                           std::uint64_t channel, int own, GroupState& state, Deadline deadline) {
  std::vector<std::unique_ptr<net::Stream>> streams(1);  // By place; our own is empty.
  std::vector<UniqueFd> descriptors(1);
  bool all = true;
  for (std::size_t place = 1; place < ranks.size(); ++place) {
    streams.push_back(take_from(topology, ranks[place], channel, state, deadline));
    descriptors.push_back(receive_if_there_is_room(*streams.back(), state, deadline));
    all = all && descriptors.back();
  }
  for (std::size_t to = 1; to < ranks.size(); ++to) {
    net::Stream& stream = *streams[to];
    const std::byte outcome = all ? kAllCollected : kNotCollected;
    write_exactly(stream, {&outcome, 1}, state, deadline);
    if (!all) continue;
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      if (from == to) continue;
      net::send_descriptor(stream.fd(), from == 0 ? own : descriptors[from].get(), Deadline::after(kDescriptorTimeout));
    }
    expect(stream, kReceived, state, deadline);
  }
  if (!all) return std::vector<UniqueFd>(ranks.size());
  return descriptors;
}

std::vector<UniqueFd> hand_over_and_receive(const Topology& topology, const std::vector<int>& ranks,
                                            const net::JobKey& key, const net::Hello& hello, int own, GroupState& state,
                                            Deadline deadline) {
  UniqueFd connection = connect_to_peer(topology, ranks.front(), key, hello, state, deadline).socket;
  const auto stream = net::make_socket_stream(std::move(connection), topology.describe(ranks.front()));
  net::send_descriptor(stream->fd(), own, Deadline::after(kDescriptorTimeout));
  std::byte outcome{};
  read_exactly(*stream, {&outcome, 1}, state, deadline);
  std::vector<UniqueFd> descriptors(ranks.size());
  if (outcome == kNotCollected) return descriptors;
  if (outcome != kAllCollected) throw_unexpected(*stream, outcome, kAllCollected);
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (ranks[place] != topology.rank()) descriptors[place] = receive_if_there_is_room(*stream, state, deadline);
  }
  write_exactly(*stream, {&kReceived, 1}, state, deadline);
  return descriptors;
}

}  // namespace

std::vector<UniqueFd> exchange_descriptors(const Topology& topology, const std::vector<int>& ranks,
                                           const net::JobKey& key, const net::Hello& hello, int own, GroupState& state,
                                           Deadline deadline) {
  state.abort_signal().throw_if_triggered();
  if (topology.rank() == ranks.front()) {
    return collect_and_hand_out(topology, ranks, hello.channel, own, state, deadline);
  }
  return hand_over_and_receive(topology, ranks, key, hello, own, state, deadline);
}

std::shared_ptr<net::Segment> exchange_segment(const Topology& topology, const std::vector<int>& ranks,
                                               const net::JobKey& key, const net::Hello& hello, std::size_t size_bytes,
                                               GroupState& state, Deadline deadline) {
  state.abort_signal().throw_if_triggered();
  if (topology.rank() == ranks.front()) return hand_out(topology, ranks, hello.channel, size_bytes, state, deadline);
  return receive(topology, ranks.front(), key, hello, size_bytes, state, deadline);
}

}  // namespace gyre::group
