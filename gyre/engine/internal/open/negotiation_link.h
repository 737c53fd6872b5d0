#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/engine/internal/open/negotiation.h"
#include "gyre/engine/internal/open/negotiation_tree.h"
#include "gyre/net/message.h"
#include "gyre/net/stream.h"

namespace gyre::engine::internal {

/// A negotiation link as the thread that serves it sees it: messages in, and bytes out that it need not wait for. Not
/// thread-safe.
class NegotiationLink {
 public:
  explicit NegotiationLink(std::unique_ptr<net::Stream> stream) : stream_(std::move(stream)) {}

  /// What to wait for in poll(2), which ignores a link that is gone.
  pollfd to_poll() const;
  /// What poll(2) has found.
  void note_events(short events) { has_news_ = (events & ~POLLOUT) != 0; }
  /// Calls take(message) for all that have come, if poll(2) has found any.
  template <typename Take>
  void receive(const Take& take) {
    while (has_news_) {
      has_news_ = read();
      while (const auto message = parser_.next()) take(*message);
    }
  }
  /// Queues bytes and sends what the link takes at once. Error(kResourceExhausted) if the other end does not read.
  void send(std::span<const std::byte> bytes);
  void flush();

  bool has_unsent() const { return !outgoing_.empty(); }
  /// The other end has closed: nothing will come any more. What it said before has been received.
  bool is_gone() const { return loss_.has_value(); }
  const std::optional<Error>& loss() const { return loss_; }

 private:
  /// True when there may be more.
  bool read();

  std::unique_ptr<net::Stream> stream_;
  net::MessageParser parser_;
  Bytes outgoing_;
  bool has_news_ = false;
  bool deaf_ = false;  // Takes nothing any more; what it has said, its goodbye perhaps, may still have to be read.
  std::optional<Error> loss_;
};

/// A rank that announces through this one, and the ranks below it.
struct NegotiationChild {
  NegotiationPlace::Child child;
  NegotiationLink link;
  AnnouncementDecoder decoder{};
};

/// Sleeps in poll(2) until something happens to the links of `children`, to `parent` (null: there is none) or to one of
/// `others`, or until `timeout_ms` have passed (-1: for ever).
void poll_links(std::vector<NegotiationChild>& children, NegotiationLink* parent, std::span<const int> others,
                int timeout_ms);

}  // namespace gyre::engine::internal
