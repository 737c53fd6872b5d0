#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/flow_limit.h"
#include "gyre/jobs/orders/log_stream.h"

namespace gyre::jobs::node {

/// Sends the files of one attempt's log folder, byte by byte as they grow, to a service that says what it has of them
/// (ADR 127). It keeps nothing but numbers: what is on its way can be read from the files again. Files that are cut, or
/// replaced, are cut there too. Only regular files of the folder's owner count, and no links, since the job may have
/// put anything there. Never waits. Not thread-safe.
class LogSender {
 public:
  using Send = std::function<void(std::uint16_t type, std::span<const std::byte> payload)>;

  /// `most_bytes`: of all files together, and a little more for what is said about it; 0: any number.
  LogSender(std::string attempt, UniqueFd folder, std::uint64_t most_bytes);

  /// Readable when look() would find something; negative where the system does not say.
  int changed_fd() const { return inotify_.get(); }
  /// Finds what is new in the folder.
  void look();
  /// Not to be called before: each line of a busy job would be a message otherwise.
  Deadline next_look() const { return next_look_; }
  /// Nothing more comes into the folder, which may lie elsewhere by now.
  void seal(UniqueFd folder);

  /// A new connection, on which at most `window` bytes may be on their way. What was said on another one is void.
  void connected(std::uint64_t window);
  // What the service says: kLogFrom, kLogTaken, kLogDone.
  void from(const orders::LogPlace& place);
  void taken(const orders::LogPlace& place);
  void done() { delivered_ = end_sent_; }

  /// Sends one message, if there is something to say and the window is open. Whether it has.
  bool send_one(const Send& send);
  std::uint64_t in_flight() const { return in_flight_; }
  /// The service has all of it on its disk.
  bool delivered() const { return delivered_; }

 private:
  struct File {
    ino_t inode = 0;
    bool asked = false;    ///< On this connection, from where the service wants it.
    bool placed = false;   ///< It has said so.
    bool refused = false;  ///< It does not want it.
    bool queued = false;
    std::uint64_t sent = 0;
    std::uint64_t taken = 0;
  };
  struct Opened {
    UniqueFd file;
    ino_t inode = 0;
    std::uint64_t bytes = 0;
  };

  void watch();
  void scan();
  void touch(const std::string& name);
  Opened open(const std::string& name) const;
  bool send_of(const std::string& name, File& file, const Send& send);
  void cut(const std::string& name, File& file, std::uint64_t bytes, const Send& send);
  std::uint64_t allowed() const;
  bool all_sent() const;

  const std::string attempt_;
  UniqueFd folder_;
  const std::uint64_t most_bytes_;
  uid_t owner_ = 0;
  UniqueFd inotify_;
  Deadline next_look_ = Deadline::after(std::chrono::milliseconds(0));
  std::map<std::string, File> files_;
  std::deque<std::string> ready_;  ///< Names of those that are `queued`.
  bool sealed_ = false;
  bool end_sent_ = false;
  bool delivered_ = false;
  FlowLimit limit_;
  std::uint64_t in_flight_ = 0;
  std::uint64_t total_ = 0;  ///< Of `sent`.
};

}  // namespace gyre::jobs::node
