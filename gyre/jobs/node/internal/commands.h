#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::node::internal {

struct StopCommand {
  orders::StopReason reason = orders::StopReason::kRequest;
  std::chrono::seconds grace{0};
};

/// What an attempt on a node was asked to do. Thread-safe. Commands stay: nobody has to be there when they come.
class Commands {
 public:
  void run(const std::vector<orders::NodeFacts>& facts);
  void finish();
  void stop(StopCommand command);
  /// Something that the attempt may wait for has changed.
  void wake() { notifier_.notify(); }
  /// The attempt is to be left as it is; its thread ends.
  void leave();

  std::optional<std::vector<orders::NodeFacts>> running() const;
  bool finishing() const;
  std::optional<StopCommand> stopping() const;
  bool leaving() const;

  /// Readable after a command that was not seen yet; the one thread that obeys calls clear() before it looks.
  int fd() const { return notifier_.fd(); }
  void clear() const { notifier_.clear(); }

 private:
  mutable Mutex mutex_;
  std::optional<std::vector<orders::NodeFacts>> run_ GYRE_GUARDED_BY(mutex_);
  bool finish_ GYRE_GUARDED_BY(mutex_) = false;
  std::optional<StopCommand> stop_ GYRE_GUARDED_BY(mutex_);
  bool leave_ GYRE_GUARDED_BY(mutex_) = false;
  net::Notifier notifier_;
};

}  // namespace gyre::jobs::node::internal
