#include "gyre/net/http/event_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/net/http/error.h"

namespace gyre::net::http {
namespace {

constexpr std::size_t kMostEventsAtOnce = 64;
constexpr std::size_t kMostIdBytes = 128;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

void check_one_line(std::string_view text, std::string_view what) {
  if (text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("an event's {} has a line break or NUL", what));
  }
}

class FeedSource : public BodySource {
 public:
  FeedSource(std::shared_ptr<EventFeed> feed, std::chrono::milliseconds heartbeat)
      : feed_(std::move(feed)), heartbeat_(heartbeat) {}

  Piece read(std::size_t) override {
    const EventFeed::Batch batch = feed_->take(kMostEventsAtOnce);
    Piece piece{.end = batch.end, .wait = std::min(heartbeat_, feed_->poll_interval())};
    for (const ServerEvent& event : batch.events) piece.bytes += encode_event(event);
    const auto now = SteadyClock::now();
    if (piece.bytes.empty() && !piece.end && now - last_sent_ >= heartbeat_) piece.bytes = ":\n\n";
    if (!piece.bytes.empty()) last_sent_ = now;
    return piece;
  }

  void set_wake(std::function<void()> wake) override { feed_->set_wake(std::move(wake)); }

 private:
  std::shared_ptr<EventFeed> feed_;
  std::chrono::milliseconds heartbeat_;
  SteadyClock::time_point last_sent_ = SteadyClock::now();
};

}  // namespace

std::string encode_event(const ServerEvent& event) {
  check_one_line(event.id, "id");
  check_one_line(event.name, "name");
  std::string text;
  if (!event.id.empty()) text += fmt::format("id: {}\n", event.id);
  if (!event.name.empty()) text += fmt::format("event: {}\n", event.name);
  for (std::string_view rest = event.data;;) {
    const std::size_t end = rest.find_first_of("\r\n");
    text += fmt::format("data: {}\n", rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(rest.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
  return text + "\n";
}

Response event_stream(std::shared_ptr<EventFeed> feed, std::chrono::milliseconds heartbeat) {
  Response response;
  response.headers = {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}};
  response.source = std::make_shared<FeedSource>(std::move(feed), heartbeat);
  return response;
}

std::optional<std::string> last_event_id(const Request& request) {
  const std::string* id = request.headers.find("Last-Event-ID");
  if (id == nullptr || id->empty()) return std::nullopt;
  if (id->size() > kMostIdBytes) {
    throw HttpError(400, "InvalidHeader", fmt::format("Last-Event-ID is longer than {} bytes", kMostIdBytes),
                    "Last-Event-ID");
  }
  return *id;
}

void EventParser::append(std::string_view bytes) {
  buffer_ += bytes;
  if (!started_) {
    if (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_)) return;
    if (buffer_.starts_with(kByteOrderMark)) buffer_.erase(0, kByteOrderMark.size());
    started_ = true;
  }
  std::size_t at = 0;
  for (;;) {
    // A line ends with \r\n, \n or \r; of a \r\n that came in two parts the \n is still to be skipped.
    if (after_carriage_return_ && at < buffer_.size()) {
      if (buffer_[at] == '\n') ++at;
      after_carriage_return_ = false;
    }
    const std::size_t end = buffer_.find_first_of("\r\n", at);
    if (end == std::string::npos) break;
    take_line(std::string_view(buffer_).substr(at, end - at));
    after_carriage_return_ = buffer_[end] == '\r';
    at = end + 1;
  }
  buffer_.erase(0, at);
  if (buffer_.size() + event_.data.size() > kMostEventBytes) {
    throw Error(ErrorCode::kProtocol, fmt::format("the server sent an event of more than {} bytes", kMostEventBytes));
  }
}

void EventParser::take_line(std::string_view line) {
  if (line.empty()) {
    if (has_data_) {
      event_.data.pop_back();  // The line break that every data line ends with.
      event_.id = last_id_;
      ready_.push_back(std::move(event_));
    }
    event_ = {};
    has_data_ = false;
    return;
  }
  const std::size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    event_.data.append(value).push_back('\n');
    has_data_ = true;
  } else if (field == "event") {
    event_.name = value;
  } else if (field == "id") {
    if (value.find('\0') == std::string_view::npos) last_id_ = value;
  } else if (field == "retry") {
    std::uint32_t milliseconds = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), milliseconds);
    if (failure == std::errc() && end == value.data() + value.size() && !value.empty()) {
      retry_ = std::chrono::milliseconds(milliseconds);
    }
  }
}

std::optional<ServerEvent> EventParser::next() {
  if (given_ == ready_.size()) {
    ready_.clear();
    given_ = 0;
    return std::nullopt;
  }
  return std::move(ready_[given_++]);
}

}  // namespace gyre::net::http
