#include "gyre/store/node/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/net/message.h"
#include "gyre/net/secure_connection.h"
#include "gyre/store/sources/backoff.h"

namespace gyre::store::node {

namespace {

constexpr std::chrono::milliseconds kAcceptLimit{1'000};
constexpr std::chrono::milliseconds kHandshakeLimit{5'000};
/// A node that lives sends something every second.
constexpr std::chrono::milliseconds kSilenceLimit{5'000};
constexpr std::chrono::milliseconds kFirstSuspicion{1'000};
constexpr std::chrono::milliseconds kLongestSuspicion{60'000};
constexpr std::size_t kMostIdle = 16;
/// So long a node is asked again that has too many connections.
constexpr std::chrono::milliseconds kBusyLimit{5'000};

Deadline soon() { return Deadline::after(kSilenceLimit); }

/// The node has too many connections.
class NodeBusy : public Error {
 public:
  explicit NodeBusy(const std::string& peer)
      : Error(ErrorCode::kResourceExhausted, fmt::format("{} has too many connections", peer)) {}
};

/// What the node says of itself, its connection being sound.
class NodeFailure : public Error {
 public:
  explicit NodeFailure(const Error& cause) : Error(cause) {}
};

}  // namespace

OtherKey::OtherKey(const Member& node, bool is_news)
    : Error(ErrorCode::kAuthentication,
            fmt::format("node {} ({}) was given another key than this node; start all nodes with the same --key-file. "
                        "Until then neither gives the other anything, and both read from the source",
                        node.id, node.endpoint)),
      is_news_(is_news) {}

std::unique_ptr<net::Stream> Peers::connect(const Member& node) {
  net::Hello hello;
  hello.rank = self_;
  hello.acceptor = node.id;
  hello.purpose = kPurpose;
  hello.channel = fingerprint_;
  hello.epoch = membership_.now()->epoch;
  hello.encrypts = true;
  try {
    return net::connect_securely(net::parse_endpoint(node.endpoint), key_, hello, Deadline::after(kAcceptLimit),
                                 Deadline::after(kHandshakeLimit));
  } catch (const net::WrongAcceptor&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kAuthentication) throw;
    const MutexLock lock(mutex_);
    throw OtherKey(node, !std::exchange(suspicions_[node.id].has_other_key, true));
  }
}

std::unique_ptr<net::Stream> Peers::take_idle(std::uint32_t node) {
  const MutexLock lock(mutex_);
  Streams& streams = idle_[node];
  if (streams.empty()) return nullptr;
  auto stream = std::move(streams.back());
  streams.pop_back();
  return stream;
}

void Peers::give_back(std::uint32_t node, std::unique_ptr<net::Stream> stream) {
  const MutexLock lock(mutex_);
  suspicions_.erase(node);
  Streams& streams = idle_[node];
  if (streams.size() < kMostIdle) streams.push_back(std::move(stream));
}

void Peers::suspect(std::uint32_t node) {
  const MutexLock lock(mutex_);
  idle_.erase(node);
  Suspicion& suspicion = suspicions_[node];
  suspicion.last = std::clamp(suspicion.last * 2, kFirstSuspicion, kLongestSuspicion);
  suspicion.until = SteadyClock::now() + suspicion.last;
}

void Peers::lives(std::uint32_t node) {
  const MutexLock lock(mutex_);
  suspicions_.erase(node);
}

bool Peers::is_suspect(std::uint32_t node) const {
  const MutexLock lock(mutex_);
  const auto found = suspicions_.find(node);
  return found != suspicions_.end() && SteadyClock::now() < found->second.until;
}

void Peers::compare_members(net::Stream& stream, std::uint64_t stamp) {
  if (stamp == membership_.stamp()) return;
  const auto own = membership_.now();
  if (stamp < own->stamp()) {
    net::send_message(stream, message_type::kSetMembers, own->encode(), soon());
  } else {
    net::send_message(stream, message_type::kGetMembers, {}, soon());
  }
  const net::Message reply = net::receive_message(stream, soon());
  if (reply.type == message_type::kMembers) membership_.adopt(Members::decode(reply.payload));
}

bool Peers::ask(net::Stream& stream, ReadRequest request, Reading& reading) {
  request.offset_bytes = static_cast<std::uint32_t>(reading.offset_bytes());
  request.size_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(reading.left_bytes(), kMostReadBytes));
  net::send_message(stream, message_type::kRead, request.encode(), soon());
  net::Message reply = net::receive_message(stream, soon());
  while (reply.type == message_type::kPatience) {
    reading.still_waiting();
    reply = net::receive_message(stream, soon());
  }
  if (reply.type == message_type::kBusy) throw NodeBusy(stream.peer());
  if (reply.type == message_type::kFailure) throw NodeFailure(decode_failure(reply.payload));
  if (reply.type != message_type::kData && reply.type != message_type::kAbsent) {
    throw Error(ErrorCode::kProtocol, fmt::format("{} sent something else than a reply", stream.peer()));
  }
  const DataReply data = DataReply::decode(reply.payload);
  const bool found = reply.type == message_type::kData;
  if (data.size_bytes != (found ? request.size_bytes : 0)) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} sent another number of bytes than it was asked for", stream.peer()));
  }
  for (std::size_t left = data.size_bytes; left > 0;) {
    const auto piece = reading.next().first(std::min(left, reading.next().size()));
    net::read_exactly(stream, piece, soon());
    left -= piece.size();
    reading.arrived(piece);
  }
  compare_members(stream, data.members);
  return found;
}

bool Peers::read(std::uint32_t node, const ReadRequest& chunk, Reading& reading) {
  std::optional<Backoff> backoff;
  while (reading.left_bytes() > 0) {
    auto stream = take_idle(node);
    const bool reused = stream != nullptr;
    try {
      if (!reused) stream = connect({.id = node, .endpoint = membership_.now()->endpoint_of(node)});
      const bool found = ask(*stream, chunk, reading);
      give_back(node, std::move(stream));
      if (!found) return false;
    } catch (const ReaderGone&) {
      throw;  // And the connection, with bytes that nobody takes, ends.
    } catch (const NodeBusy& error) {
      reading.still_waiting();
      if (!backoff) backoff.emplace(kBusyLimit);
      if (backoff->wait({.reason = error.what()}, {})) continue;
      suspect(node);
      throw;
    } catch (const NodeFailure&) {
      give_back(node, std::move(stream));
      throw;
    } catch (const Error& error) {
      // The node may have been started anew since the connection was made.
      if (reused && error.code() == ErrorCode::kPeerLost) continue;
      suspect(node);
      throw;
    }
  }
  return true;
}

void Peers::announce(const Member& node) {
  const auto stream = connect(node);
  net::send_message(*stream, message_type::kSetMembers, membership_.now()->encode(), soon());
  const net::Message reply = net::receive_message(*stream, soon());
  if (reply.type == message_type::kMembers) membership_.adopt(Members::decode(reply.payload));
}

}  // namespace gyre::store::node
