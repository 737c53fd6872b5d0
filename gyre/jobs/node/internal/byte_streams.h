#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/stream_end.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node::internal {

/// The node's ends of the streams that clients of the service have opened: connections to ports of this machine's
/// loopback address (ADR 134), which are reset if their streams end early, and commands in the job (ADR 137). Nothing
/// here waits, and no stream holds more than its windows. For one thread.
class ByteStreams {
 public:
  using Send = StreamEnd::Send;
  /// Has a command run in the job that it answers to; returns the channel over which it is asked for and served
  /// (node/job_command.h). Error says why it cannot run.
  using StartCommand = std::function<UniqueFd(const orders::CommandRequest& request)>;

  /// Error(kResourceExhausted).
  explicit ByteStreams(StartCommand start_command);
  ~ByteStreams();
  ByteStreams(const ByteStreams&) = delete;
  ByteStreams& operator=(const ByteStreams&) = delete;

  /// The attempt to whose streams it answers, and with whose account it connects; unset: ours. Streams of another one
  /// end.
  void serve(const std::string& attempt, const std::optional<UserId>& account, const Send& send);
  const std::string& attempt() const { return attempt_; }
  /// Nobody listens any more: all streams end.
  void disconnected();
  /// False: it is about something else. Error(kProtocol | kCorruptData).
  bool obey(const net::Message& message, const Send& send);
  /// Readable when step() has something to do.
  int fd() const { return epoll_.get(); }
  void step(const Send& send);

 private:
  std::unique_ptr<StreamEnd> end_for(std::uint32_t number, const orders::StreamRequest& request) const;
  void open(std::uint32_t number, const orders::StreamRequest& request, const Send& send);
  void end_all(const std::string& why, const Send& send);
  /// Adapts what is waited for, or ends the stream.
  void settle(std::uint32_t number, const Send& send);

  const StartCommand start_command_;
  UniqueFd epoll_;
  std::string attempt_;
  std::optional<UserId> account_;
  std::map<std::uint32_t, std::unique_ptr<StreamEnd>> streams_;
};

}  // namespace gyre::jobs::node::internal
