#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/jobs/node/log_sender.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node::internal {

/// What this node still has to send of the logs of its attempts. While an attempt runs its log folder is the job's;
/// when it has ended, the folder is taken out of the job's reach, below NodeFolders::undelivered(), where a node
/// program that starts anew finds it. Once the service has all of it on its disk it is emptied; it goes when the
/// attempt is forgotten, since its place may be a later attempt's by then. Not thread-safe.
class LogDeliveries {
 public:
  LogDeliveries(const NodeFolders& folders, Logger logger);

  /// The attempt in hand, whose log folder is there now or will be soon. `most_bytes`: as LogSender.
  void follow(const std::string& attempt, const std::filesystem::path& log_folder, std::uint64_t most_bytes);
  /// It has ended. A second call changes nothing.
  void seal(const std::string& attempt, const std::filesystem::path& log_folder);
  bool has(const std::string& attempt) const { return senders_.contains(attempt); }
  /// Nobody asks for the attempt any more; what is not delivered of it is, all the same.
  void forget(const std::string& attempt);
  /// Nothing that the service would take is left.
  bool done() const { return senders_.empty() || window_ == 0; }

  /// `window`: of the service's welcome; 0: it takes no logs.
  void connected(std::uint64_t window);
  /// False: it is about something else. Error(kCorruptData).
  bool obey(const net::Message& message);
  /// Says as much as the connection takes at once.
  void send(orders::MessagePipe& pipe);
  /// Attempts whose logs are all delivered since the last call.
  std::vector<std::string> take_delivered();

  /// Readable when the running attempt has written something. Negative: nothing is to be polled.
  int changed_fd() const;
  /// When look() is to be called, or changed_fd() to be asked for anew; nothing: not before something else happens.
  std::optional<Deadline> next_look() const;
  void look();

 private:
  struct Awaited {
    std::string attempt;
    std::filesystem::path folder;
    std::uint64_t most_bytes = 0;
  };

  const LogSender* running() const;
  UniqueFd open_in_root(const std::filesystem::path& folder) const;
  void start(const std::string& attempt, LogSender sender);
  void finish(const std::string& attempt);
  /// The log folder of an attempt that has ended, where the job cannot reach it; an empty one where there is none.
  UniqueFd move_away(const std::string& attempt, const std::filesystem::path& log_folder);

  const NodeFolders folders_;
  const Logger logger_;
  std::map<std::string, LogSender> senders_;  ///< By attempt.
  std::string running_;                       ///< The one of them that is not sealed.
  std::optional<Awaited> awaited_;            ///< Whose folder is not there yet.
  std::uint64_t window_ = 0;
  std::set<std::string> forgotten_;  ///< Of those that have senders.
  std::set<std::string> done_;       ///< Delivered, and not forgotten.
  std::vector<std::string> delivered_;
};

}  // namespace gyre::jobs::node::internal
