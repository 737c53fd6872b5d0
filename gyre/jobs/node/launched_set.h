#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/internal/json_lines.h"

namespace gyre::jobs::node {

/// What is to be seen of a `gyre launch` at the path of its socket.
enum class LaunchState {
  kAbsent,    ///< There is none: not yet, or not any more.
  kStarting,  ///< Its specification was written, but it does not listen yet, or never will.
  kRuns,
  kDied,  ///< It was killed; its guardian has ended the ranks.
};

/// A `gyre launch` (docs/guide/launch.md) that this process, or one before it, has started. Not thread-safe.
///
/// Its socket may lie in a folder of the job's account, which can put anything there. So the connection is made to the
/// very socket that was looked at, which belongs to the folder's owner, and never waits for whoever listens there.
class LaunchedSet {
 public:
  static LaunchState state(const std::filesystem::path& socket);

  /// Starts `program launch` with the specification, whose socket must be `socket`, in a session of its own. It has
  /// `environment` and nothing of ours. Where one listens already, or a start is under way, that one is meant: no
  /// second set of ranks is started. It inherits `descriptors`. Error(kIo | kInvalidArgument …) with the words of `gyre
  /// launch`.
  static LaunchedSet start(const std::string& program, const nlohmann::json& specification,
                           const Variables& environment, const std::filesystem::path& socket,
                           const std::vector<int>& descriptors = {});
  /// Error(kPeerLost) when nobody listens.
  static LaunchedSet find(const std::filesystem::path& socket);

  /// The next record, from the first on; nothing at the deadline, or when `wake_fd` has become readable.
  /// Error(kPeerLost) when the process has gone without a last record, Error(kProtocol, kCorruptData) for anything that
  /// is not a record.
  std::optional<nlohmann::json> next(Deadline deadline, int wake_fd);

  /// The process at the other end, as the kernel says; 0: it has gone.
  pid_t peer() const { return peer_; }

  void stop(int signal, std::chrono::seconds grace);
  void kill();
  /// After the last record: lets it go, and waits until it has gone, at most `limit`.
  void release(std::chrono::milliseconds limit);

 private:
  explicit LaunchedSet(UniqueFd socket);
  void ask(const nlohmann::json& request);

  pid_t peer_;
  internal::JsonLines lines_;
};

/// What an `output` record carries. Error(kProtocol).
std::string output_of(const nlohmann::json& record);

}  // namespace gyre::jobs::node
