#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/node/flow_limit.h"
#include "gyre/jobs/orders/code_stream.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::node {

/// Brings one archive of code from the service into a file (ADR 131). While it comes it is FILE.part: a fetch that
/// starts anew goes on at the byte after what lies there. It gets its name once it is whole and its SHA-256 is the
/// right one. A thread of its own writes and hashes, so that a slow disk holds up no lease. All functions return at
/// once; they are for one thread.
class CodeFetch {
 public:
  using Send = std::function<void(std::uint16_t type, std::span<const std::byte> payload)>;

  /// `attempt`: by which the service knows that this node may have it.
  CodeFetch(std::string attempt, std::string sha256, std::filesystem::path file);
  /// Leaves what has come.
  ~CodeFetch();
  CodeFetch(const CodeFetch&) = delete;
  CodeFetch& operator=(const CodeFetch&) = delete;

  const std::string& sha256() const { return sha256_; }
  /// Another one has the same code.
  void ask_for(const std::string& attempt) { attempt_ = attempt; }

  /// A new connection, on which at most `window` bytes may be asked for at once; 0: there is none.
  void connected(std::uint64_t window);
  void take(orders::CodePiece piece);
  /// It will not come.
  void fail(const Error& why);
  /// Asks for one more range, if there is one to ask for and the window is open. Whether it has.
  bool send_one(const Send& send);

  /// Readable when something has changed since clear_changed().
  int changed_fd() const { return changed_.fd(); }
  void clear_changed() const { changed_.clear(); }
  bool is_here() const;
  /// Why it will not come.
  std::optional<Error> failure() const;
  /// Asked for, and not in the file.
  std::uint64_t in_flight() const;

 private:
  struct Hash;

  void run();
  void begin() GYRE_EXCLUDES(mutex_);
  void start_anew() GYRE_REQUIRES(mutex_);
  void write(std::span<const std::byte> bytes) GYRE_EXCLUDES(mutex_);
  void finish() GYRE_EXCLUDES(mutex_);

  std::string attempt_;
  const std::string sha256_;
  const std::filesystem::path file_;
  const std::filesystem::path draft_;
  FlowLimit limit_;
  net::Notifier changed_;

  mutable Mutex mutex_;
  ConditionVariable work_;
  bool over_ GYRE_GUARDED_BY(mutex_) = false;
  bool ready_ GYRE_GUARDED_BY(mutex_) = false;  ///< It is known where to go on.
  bool here_ GYRE_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  std::optional<std::uint64_t> total_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t asked_ GYRE_GUARDED_BY(mutex_) = 0;               ///< All before it, on this connection.
  std::uint64_t come_ GYRE_GUARDED_BY(mutex_) = 0;                ///< All before it.
  std::uint64_t written_ GYRE_GUARDED_BY(mutex_) = 0;             ///< All before it.
  bool answered_ GYRE_GUARDED_BY(mutex_) = false;                 ///< `total_` was told on this connection.
  std::deque<orders::CodePiece> pieces_ GYRE_GUARDED_BY(mutex_);  ///< From `written_` to `come_`.

  // The thread's own.
  UniqueFd draft_file_;
  std::unique_ptr<Hash> hash_;
  bool resumed_ = false;  ///< Some of it was there before.
  std::thread thread_;    // The last: it uses the others.
};

}  // namespace gyre::jobs::node
