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

void expect(net::Stream& stream, std::byte expected, GroupState& state, Deadline deadline) {
  std::byte received{};
  read_exactly(stream, {&received, 1}, state, deadline);
  if (received == expected) return;
  throw Error(ErrorCode::kProtocol, fmt::format("{} sent byte {} instead of {} while sharing memory", stream.peer(),
                                                std::to_integer<int>(received), std::to_integer<int>(expected)));
}

std::shared_ptr<net::Segment> hand_out(const Topology& topology, const std::vector<int>& ranks, std::uint64_t channel,
                                       std::size_t size_bytes, GroupState& state, Deadline deadline) {
  auto segment = net::Segment::create(size_bytes);
  std::vector<std::unique_ptr<net::Stream>> streams;
  for (const int peer : ranks) {
    if (peer == topology.rank()) continue;
    LinkConnection connection = state.take_link({peer, Purpose::kSegment, channel}, topology, deadline);
    if (net::leaves_host(connection.socket.get())) {
      throw Error(ErrorCode::kProtocol,
                  fmt::format("{} wants to share memory from another host", topology.describe(peer)));
    }
    streams.push_back(net::make_socket_stream(std::move(connection.socket), topology.describe(peer)));
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

}  // namespace

std::shared_ptr<net::Segment> exchange_segment(const Topology& topology, const std::vector<int>& ranks,
                                               const net::JobKey& key, const net::Hello& hello, std::size_t size_bytes,
                                               GroupState& state, Deadline deadline) {
  state.abort_signal().throw_if_triggered();
  if (topology.rank() == ranks.front()) return hand_out(topology, ranks, hello.channel, size_bytes, state, deadline);
  return receive(topology, ranks.front(), key, hello, size_bytes, state, deadline);
}

}  // namespace gyre::group
