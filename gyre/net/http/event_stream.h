#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/net/http/message.h"

// Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
namespace gyre::net::http {

struct ServerEvent {
  std::string id;    ///< What a client sends back as Last-Event-ID; empty: the last one stays.
  std::string name;  ///< Empty: "message".
  std::string data;  ///< May have several lines.

  friend bool operator==(const ServerEvent&, const ServerEvent&) = default;
};

/// Error(kInvalidArgument) for an id or name with a line break or NUL.
std::string encode_event(const ServerEvent& event);

/// Where a stream's events come from.
class EventFeed {
 public:
  struct Batch {
    std::vector<ServerEvent> events;
    bool end = false;  ///< No event follows these: the stream ends.
  };

  virtual ~EventFeed() = default;

  /// The events after those given before, at most `most`; must not wait for one. Runs on a thread of the server's pool.
  virtual Batch take(std::size_t most) = 0;
  /// As BodySource::set_wake.
  virtual void set_wake(std::function<void()> wake) { static_cast<void>(wake); }  // NOLINT(performance-*)
  /// How often take() is called without being woken.
  virtual std::chrono::milliseconds poll_interval() const { return std::chrono::seconds(1); }
};

/// Streams a feed. A comment goes out each `heartbeat` in which there was no event, so that both sides notice a dead
/// connection.
Response event_stream(std::shared_ptr<EventFeed> feed, std::chrono::milliseconds heartbeat = std::chrono::seconds(15));

/// What Last-Event-ID says; nothing without one. HttpError(400) when it is longer than 128 bytes.
std::optional<std::string> last_event_id(const Request& request);

/// A client's side: bytes in, events out.
class EventParser {
 public:
  static constexpr std::size_t kMostEventBytes = std::size_t{4} << 20;

  /// Error(kProtocol) when an event exceeds kMostEventBytes.
  void append(std::string_view bytes);
  std::optional<ServerEvent> next();
  /// The id to send as Last-Event-ID after a reconnect.
  const std::string& last_id() const { return last_id_; }
  /// What the server asked clients to wait before they reconnect.
  std::optional<std::chrono::milliseconds> retry() const { return retry_; }

 private:
  void take_line(std::string_view line);

  std::string buffer_;
  bool started_ = false;
  bool after_carriage_return_ = false;
  ServerEvent event_;
  bool has_data_ = false;
  std::string last_id_;
  std::optional<std::chrono::milliseconds> retry_;
  std::vector<ServerEvent> ready_;
  std::size_t given_ = 0;
};

}  // namespace gyre::net::http
