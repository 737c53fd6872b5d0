#pragma once

#include <string>

#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/stream_end.h"

namespace gyre::jobs::node::internal {

/// A connection to a port of this machine's loopback address (ADR 134). It is reset if its stream ends early.
class PortStream final : public StreamEnd {
 public:
  /// Begins to connect.
  PortStream(std::uint32_t number, std::uint16_t port);
  ~PortStream() override;
  PortStream(const PortStream&) = delete;
  PortStream& operator=(const PortStream&) = delete;

  int fd() const override { return socket_.get(); }
  std::uint32_t interest() const override;
  const std::optional<std::string>& over() const override { return over_; }
  void take(const orders::StreamMessage& message, const Send& send) override;
  void step(std::uint32_t events, const Send& send) override;

 private:
  void connect();
  void fail(int failure);
  bool finish_connecting();
  void finish();
  void write(const Send& send);
  void read(const Send& send);

  const std::uint32_t number_;
  const std::uint16_t port_;
  UniqueFd socket_;
  bool connecting_ = false;
  std::string waiting_;  // For the socket.
  std::uint64_t owed_ = 0;
  std::uint64_t credit_ = orders::kStreamWindow;
  bool ended_ = false;     // The client sends no more.
  bool shut_ = false;      // The socket has been told so.
  bool read_all_ = false;  // The socket has no more for us.
  int failure_ = 0;        // Why the socket took no more.
  std::optional<std::string> over_;
};

}  // namespace gyre::jobs::node::internal
