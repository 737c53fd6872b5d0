#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "gyre/base/file.h"
#include "gyre/jobs/client/session.h"
#include "gyre/net/http/client.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::client {

/// Passes bytes on between a stream to a node (orders/byte_stream.h) and a connected socket, until both have ended,
/// either fails, or `stop_fd` is readable. Holds no more than the stream's window. Why it ended early, for people,
/// also where the service is gone; empty where it did not. A socket whose stream ended early is reset when it is
/// closed. Error(kProtocol | kIo).
std::string pass_on(net::http::ClientTunnel& tunnel, const UniqueFd& socket, int stop_fd);

struct ForwardOptions {
  SessionOptions session{};
  resources::JobName job{};
  int rank = 0;
  std::uint16_t remote_port = 0;
  std::uint16_t local_port = 0;  ///< 0: the system chooses.
  /// Called, by any thread, with why a connection could not be, or ended early.
  std::function<void(const std::string&)> failed = [](const std::string&) {};
};

/// A port of this machine's loopback address that leads to one of a job's node: each connection gets a stream of its
/// own, and a thread.
class PortForward {
 public:
  /// Listens. Error(kIo …) where the port is taken; net::http::HttpError where the service does not let us.
  explicit PortForward(ForwardOptions options);
  /// Ends all connections.
  ~PortForward();
  PortForward(const PortForward&) = delete;
  PortForward& operator=(const PortForward&) = delete;

  std::uint16_t local_port() const { return local_port_; }
  /// Readable when accept() would not wait.
  int fd() const { return listener_.get(); }
  /// The next connection, if there is one, and lets go of those that have ended.
  void accept();

 private:
  struct Worker {
    std::shared_ptr<std::atomic<bool>> done;
    std::thread thread;
  };
  Path path() const;
  Query query() const;
  void serve(const UniqueFd& socket) const;

  const ForwardOptions options_;
  UniqueFd listener_;
  std::uint16_t local_port_ = 0;
  net::Notifier stop_;
  std::list<Worker> workers_;
};

}  // namespace gyre::jobs::client
