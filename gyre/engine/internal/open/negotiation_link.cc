#include "gyre/engine/internal/open/negotiation_link.h"

#include <fmt/format.h>
#include <array>
#include <cerrno>

namespace gyre::engine::internal {

namespace {

constexpr std::size_t kFrameBytesAtOnce = 64 * 1024;
/// A rank that does not read its orders while so much is waiting for it has stopped working.
constexpr std::size_t kMostOutgoingBytes = std::size_t{256} << 20;

}  // namespace

pollfd NegotiationLink::to_poll() const {
  const short events = static_cast<short>(POLLIN | (outgoing_.empty() ? 0 : POLLOUT));
  return {is_gone() ? -1 : stream_->fd(), events, 0};
}

bool NegotiationLink::read() {
  if (is_gone()) return false;
  std::array<std::byte, kFrameBytesAtOnce> buffer;
  try {
    const std::size_t count = stream_->read_some(buffer);
    parser_.append(std::span(buffer).first(count));
    return count == buffer.size();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    loss_ = error;
    outgoing_.clear();
    return false;
  }
}

void NegotiationLink::send(std::span<const std::byte> bytes) {
  if (is_gone() || deaf_) return;
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  flush();
}

void NegotiationLink::flush() {
  if (is_gone() || outgoing_.empty()) return;
  try {
    const std::size_t count = stream_->write_some(outgoing_);
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(count));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    deaf_ = true;
    outgoing_.clear();
  }
  if (outgoing_.size() > kMostOutgoingBytes) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("{} does not read its messages: {} are waiting for it",
                                                           stream_->peer(), format_bytes(outgoing_.size())));
  }
}

void poll_links(std::vector<NegotiationChild>& children, NegotiationLink* parent, std::span<const int> others,
                int timeout_ms) {
  std::vector<NegotiationLink*> links;
  for (NegotiationChild& child : children) links.push_back(&child.link);
  if (parent != nullptr) links.push_back(parent);
  std::vector<pollfd> polled;
  for (const NegotiationLink* link : links) polled.push_back(link->to_poll());
  for (const int fd : others) polled.push_back({fd, POLLIN, 0});
  const bool found = ::poll(polled.data(), polled.size(), timeout_ms) >= 0;
  if (!found && errno != EINTR) throw system_error("poll", errno);
  for (std::size_t i = 0; i < links.size(); ++i) links[i]->note_events(found ? polled[i].revents : short{0});
}

}  // namespace gyre::engine::internal
