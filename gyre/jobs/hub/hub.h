#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/jobs/hub/attempt_run.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/hub/node_stream.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::hub {

struct HubOptions {
  net::Endpoint endpoint;  ///< "unix:/PATH" or "tcp:HOST:PORT".
  net::JobKey key{};
  std::chrono::milliseconds lease{10'000};
  /// Beyond the lease until a node counts as lost: what its node program may need to kill a job.
  std::chrono::milliseconds margin{3'000};
  /// From an order until the node's program has to have come. Zero: the code that starts node programs decides
  /// that (lose_node()).
  std::chrono::milliseconds longest_start{30'000};
  /// From its last renewal until a node program whose connection has ended has to be back.
  std::chrono::milliseconds longest_absence{30'000};
  LogStoreOptions logs = {};
  Logger logger = null_logger();
};

/// Something that happened to an attempt or to a node program.
struct HubEvent {
  enum class Kind {
    kRunning,  ///< All nodes are prepared and run the attempt.
    kNote,     ///< `text`: a sentence for the job's events.
    kEnded,  ///< `result`. Told once; after a restart of the service, node programs tell it again until acknowledge().
    kNodeCame,  ///< `node`
    kNodeGone,  ///< `node`: its connection ended; its lease may still hold.
    kNodeLost,  ///< `node`: its lease is over.
  };
  Kind kind = Kind::kNote;
  std::string attempt;
  std::string node;  ///< NodePlace::registered_name().
  std::string text;
  std::optional<AttemptResult> result;
  std::map<std::string, orders::NodeReport> reports = {};  ///< Of kEnded: AttemptRun::last_reports().
};

/// The key with which the nodes of one attempt alone can connect, for those that should not get the service's.
net::JobKey key_of_nodes(const net::JobKey& key, const std::string& attempt);

/// The service's side of all node programs: admits those that know the key, or that of an attempt of which they are,
/// keeps their leases, and brings attempts to their ends. It keeps nothing on disk but the logs that they send: after a
/// restart it is given the attempts again, and learns the rest from the node programs. An attempt is told as ended once
/// the logs of its nodes have come, or the nodes are lost. Thread-safe; runs three threads of its own.
class Hub {
 public:
  /// Node programs wait until admit(). Error(kIo) when it cannot listen there. A socket file that nobody listens at is
  /// replaced.
  explicit Hub(const HubOptions& options);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// Lets node programs in. Not before submit() of all attempts that are not new: a node program that reports one that
  /// nobody knows has to end it.
  void admit();
  /// A second call with the same attempt changes nothing.
  void submit(const orders::WorkOrder& order);
  void stop(const std::string& attempt, orders::StopReason reason, std::chrono::seconds grace);
  /// The result has been written down.
  void acknowledge(const std::string& attempt);
  /// What a node program has left written that will not come any more.
  void report(const std::string& node, const orders::NodeReport& report);
  /// What is known of it already: a driver's node program could not be started, say.
  void lose_node(const std::string& node, const std::string& why, NodeLoss loss = NodeLoss::kByChance);
  /// Opens a stream to one of the attempt's nodes, counted from 0 (ADR 134). Returns at once; the stream says what has
  /// become of it. It may outlive the hub, with which it is over.
  std::shared_ptr<NodeStream> open_stream(const orders::StreamRequest& request, std::size_t node);
  /// Tells the node's program that it may end, once it has nothing to do.
  void dismiss(const std::string& node);

  /// What has happened since the last call; waits for something until the deadline.
  std::vector<HubEvent> take_events(Deadline deadline);
  /// take_events() returns, with nothing where there is nothing.
  void wake();
  /// Readable while take_events() would not wait.
  int fd() const;
  /// Where it listens; a tcp port that the system chose is filled in.
  const net::Endpoint& endpoint() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::hub
