#pragma once

#include <cstddef>
#include <string>

#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/stream_end.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node::internal {

/// Passes messages on between a client and the process that serves its command (node/job_command.h), which has the
/// job's account and may send anything: what does not belong ends the stream.
class CommandStream final : public StreamEnd {
 public:
  /// Asks for the command of `request` over `channel`.
  CommandStream(std::uint32_t number, UniqueFd channel, const orders::StreamRequest& request);

  int fd() const override { return channel_.get(); }
  std::uint32_t interest() const override;
  const std::optional<std::string>& over() const override { return over_; }
  void take(const orders::StreamMessage& message, const Send& send) override;
  void step(std::uint32_t events, const Send& send) override;

 private:
  void write();
  void read(const Send& send);
  void pass_on(const net::Message& message, const Send& send);
  /// Of what it may send; whether it may.
  bool spend(const orders::StreamMessage& message);

  const std::uint32_t number_;
  UniqueFd channel_;
  net::MessageParser parser_;
  std::string waiting_;  // For the channel.
  std::uint64_t bytes_may_come_ = orders::kStreamWindow;
  std::uint64_t errors_may_come_ = orders::kStreamWindow;
  std::uint64_t uncredited_ = 0;  // That the client has sent.
  bool exited_ = false;
  std::optional<std::string> over_;
};

}  // namespace gyre::jobs::node::internal
