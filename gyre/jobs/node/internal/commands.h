#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::node::internal {

struct StopCommand {
  orders::StopReason reason = orders::StopReason::kRequest;
  std::chrono::seconds grace{0};
};

/// A command for a shell's user (ADR 137).
struct CommandStart {
  std::optional<int> rank;  ///< Whose environment it gets; unset: that of the node's first.
  UniqueFd channel;         ///< Over which it is asked for and served: messages of orders/byte_stream.h.
};

/// What an attempt on a node was asked to do. Thread-safe. Commands stay: nobody has to be there when they come.
class Commands {
 public:
  void run(const std::vector<orders::NodeFacts>& facts);
  void finish();
  void stop(StopCommand command);
  /// Not kept for a process that comes later.
  void start(CommandStart command);
  /// Something that the attempt may wait for has changed.
  void wake() { notifier_.notify(); }
  /// The attempt is to be left as it is; its thread ends.
  void leave();

  std::optional<std::vector<orders::NodeFacts>> running() const;
  bool finishing() const;
  std::optional<StopCommand> stopping() const;
  bool leaving() const;
  std::vector<CommandStart> take_starts();

  /// Readable after a command that was not seen yet; the one thread that obeys calls clear() before it looks.
  int fd() const { return notifier_.fd(); }
  void clear() const { notifier_.clear(); }

 private:
  mutable Mutex mutex_;
  std::optional<std::vector<orders::NodeFacts>> run_ GYRE_GUARDED_BY(mutex_);
  bool finish_ GYRE_GUARDED_BY(mutex_) = false;
  std::optional<StopCommand> stop_ GYRE_GUARDED_BY(mutex_);
  bool leave_ GYRE_GUARDED_BY(mutex_) = false;
  std::vector<CommandStart> starts_ GYRE_GUARDED_BY(mutex_);
  net::Notifier notifier_;
};

}  // namespace gyre::jobs::node::internal
