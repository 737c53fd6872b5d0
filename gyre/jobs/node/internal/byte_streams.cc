#include "gyre/jobs/node/internal/byte_streams.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <utility>

#include "gyre/base/acting_as.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/jobs/node/internal/command_stream.h"
#include "gyre/jobs/node/internal/port_stream.h"

namespace gyre::jobs::node::internal {

namespace stream_message = orders::stream_message;
using orders::encode_stream;

ByteStreams::ByteStreams(StartCommand start_command)
    : start_command_(std::move(start_command)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw system_error("epoll_create1", errno);
}

ByteStreams::~ByteStreams() = default;

void ByteStreams::serve(const std::string& attempt, const std::optional<UserId>& account, const Send& send) {
  if (attempt != attempt_) end_all("the job has ended", send);
  attempt_ = attempt;
  account_ = account;
}

void ByteStreams::disconnected() { streams_.clear(); }

void ByteStreams::end_all(const std::string& why, const Send& send) {
  for (const auto& [number, stream] : streams_) send(stream_message::kClosed, encode_stream(number, as_bytes(why)));
  streams_.clear();
}

std::unique_ptr<StreamEnd> ByteStreams::end_for(std::uint32_t number, const orders::StreamRequest& request) const {
  if (request.command) return std::make_unique<CommandStream>(number, start_command_(*request.command), request);
  // To whoever asks whose a connection is, it is the job's.
  std::optional<ActingAs> acting;
  if (account_) acting.emplace(*account_);
  return std::make_unique<PortStream>(number, request.port);
}

void ByteStreams::open(std::uint32_t number, const orders::StreamRequest& request, const Send& send) {
  const auto refuse = [&](std::string_view why) {
    send(stream_message::kClosed, encode_stream(number, as_bytes(why)));
  };
  if (attempt_.empty() || request.attempt != attempt_) return refuse("the job does not run on the node any more");
  if (streams_.contains(number) || streams_.size() >= orders::kMostStreams) {
    return refuse(
        fmt::format("{} connections to the node are open already, the most that there can be", orders::kMostStreams));
  }
  std::unique_ptr<StreamEnd> stream;
  try {
    stream = end_for(number, request);
  } catch (const Error& error) {
    return refuse(error.what());
  }
  if (stream->over()) return refuse(*stream->over());
  streams_[number] = std::move(stream);
  settle(number, send);
}

void ByteStreams::settle(std::uint32_t number, const Send& send) {
  const auto found = streams_.find(number);
  if (const auto& over = found->second->over()) {
    send(stream_message::kClosed, encode_stream(number, as_bytes(*over)));
    streams_.erase(found);
    return;
  }
  epoll_event event{.events = found->second->interest(), .data = {.u32 = number}};
  const int fd = found->second->fd();
  // One that nothing is wanted of would be reported for ever once it is reset.
  if (event.events == 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  } else if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

bool ByteStreams::obey(const net::Message& message, const Send& send) {
  if (!orders::is_about_streams(message.type)) return false;
  const orders::StreamMessage part = orders::stream_message_from(message);
  if (part.type == stream_message::kOpen) {
    open(part.stream, stream_request_from(part), send);
    return true;
  }
  const auto found = streams_.find(part.stream);
  if (found == streams_.end()) return true;  // It has just ended.
  if (part.type == stream_message::kClosed) {
    streams_.erase(found);
    return true;
  }
  found->second->take(part, send);
  settle(part.stream, send);
  return true;
}

void ByteStreams::step(const Send& send) {
  std::array<epoll_event, orders::kMostStreams> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
    const auto found = streams_.find(number);
    if (found == streams_.end()) continue;
    found->second->step(events[static_cast<std::size_t>(i)].events, send);
    settle(number, send);
  }
}

}  // namespace gyre::jobs::node::internal
