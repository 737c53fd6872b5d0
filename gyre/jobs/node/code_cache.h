#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/node/code_fetch.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node {

/// The archives of code that a node keeps: that of its attempt, which comes from the service if it is not there, and
/// earlier ones for jobs that come with the same code. Whatever lay there before this process is hashed again, so that
/// nothing depends on what a crash of the machine has left. open() is thread-safe; the rest is for one thread.
class CodeCache {
 public:
  /// `most_bytes`: archives that are not the attempt's go, the oldest first, while all of them have more.
  CodeCache(const NodeFolders& folders, std::uint64_t most_bytes, Logger logger);

  /// The node's attempt needs it; the one before is over.
  void want(const std::string& attempt, const std::string& sha256);
  /// The same after a restart, in the middle of the attempt: what is there may be in use.
  void want_again(const std::string& attempt, const std::string& sha256);
  /// The archive, once it is here. Error: why it will not come.
  std::optional<UniqueFd> open(const std::string& sha256) const;

  /// A new connection. `window`: of the service's welcome; 0: it sends no code.
  void connected(std::uint64_t window);
  void disconnected();
  /// False: it is about something else. What is about code is taken over. Error(kCorruptData).
  bool obey(net::Message& message);
  /// Asks for as much as the connection may carry.
  void send(const CodeFetch::Send& send);
  /// Readable when send() has more to say, or look() something to tell; negative: there is nothing to wait for.
  int changed_fd() const { return fetch_ ? fetch_->changed_fd() : -1; }
  /// Whether the archive has come, or has turned out not to come, since the last call.
  bool look();

 private:
  void make_room() const;
  std::filesystem::path file_of(const std::string& sha256) const;

  const std::filesystem::path folder_;
  const std::uint64_t most_bytes_;
  const Logger logger_;
  std::string wanted_;
  std::optional<std::uint64_t> window_;  ///< Of the connection.
  std::set<std::string> checked_;        ///< By this process.
  std::unique_ptr<CodeFetch> fetch_;
  mutable Mutex mutex_;
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::node
