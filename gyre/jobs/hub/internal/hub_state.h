#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/hub/attempt_run.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub::internal {

/// One message for a node program.
struct Outgoing {
  std::string node;
  std::uint16_t type = 0;
  std::string payload;
};

/// All attempts and all node programs, without network and threads: what came in, at which time, and what is to go out.
/// The hub's heart; tested with a virtual clock.
class HubState {
 public:
  using Time = SteadyClock::time_point;

  HubState(const HubOptions& options, Time started) : options_(options), started_(started) {}

  void submit(const orders::WorkOrder& order, Time now);
  void stop(const std::string& attempt, orders::StopReason reason, std::chrono::seconds grace);
  void acknowledge(const std::string& attempt);
  void node_came(const orders::Registration& registration, Time now);
  void node_gone(const std::string& node);
  void renewed(const std::string& node, Time now);
  void report(const std::string& node, const orders::NodeReport& report);
  void lose_node(const std::string& node, const std::string& why, NodeLoss loss = NodeLoss::kByChance);
  /// A sentence for the events of an attempt.
  void note(const std::string& attempt, const std::string& text);
  /// Nodes whose time is over are lost.
  void look_at_clock(Time now);

  /// What has to be said since the last call.
  std::vector<Outgoing> take_outgoing();
  std::vector<HubEvent> take_events();
  bool has_events() const { return !events_.empty(); }

 private:
  struct NodeContact {
    bool connected = false;
    Time last;  ///< Its last renewal, or when it began to be expected.
    bool lost = false;
    bool came = false;
    std::string address = {};
    int cores = 1;
    int gpus = 0;
    std::string busy_with = {};  ///< The attempt that it has in hand, as far as it has said.
    bool asks_for_code = true;
  };
  struct Entry {
    AttemptRun run;
    std::size_t notes_told = 0;
    bool running_told = false;
    bool end_told = false;
    std::map<int, NodeCommand> told;  ///< By node; what its present connection has been told last.
  };

  /// Of an attempt that nobody knows any more: what has ended is forgotten, what runs must end first.
  void settle(const std::string& node, const orders::NodeReport& report);
  /// What a report says of the node itself. Attempts that wait for it go on once it is free.
  void note_work(const std::string& node, const orders::NodeReport& report);
  void update(Entry& entry);
  void tell(Entry& entry, int node);

  HubOptions options_;
  Time started_;
  std::map<std::string, Entry> attempts_;
  std::map<std::string, NodeContact> nodes_;
  /// Of attempts that are not known yet, by node and attempt, while a service that has just started is handing over
  /// those that one before it had started.
  std::map<std::pair<std::string, std::string>, orders::NodeReport> early_;
  bool handed_over_ = false;
  std::vector<Outgoing> outgoing_;
  std::vector<HubEvent> events_;
};

}  // namespace gyre::jobs::hub::internal
