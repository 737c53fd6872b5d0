#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers {

/// Where the service is, for the nodes and for other services.
struct Service {
  std::string name;     ///< No other service's.
  net::Endpoint place;  ///< Where the nodes reach it.
};

/// What an engine is asked for: nodes for one attempt, each of which is to run `gyre agent` for its place in it.
struct NodeRequest {
  std::string name;         ///< Follows from the attempt: of one that was asked for twice, list() shows both under it.
  orders::WorkOrder order;  ///< Completed. The engine hands nothing of its secrets on.
  Service service;
  net::JobKey key{};             ///< What the agents prove to the service; of this attempt alone.
  std::filesystem::path folder;  ///< For what the engine keeps of the attempt; ours alone, and gone with it.
};

/// Nodes that an engine has given, or is to give, for one request.
struct Holding {
  enum class State {
    kWaits,     ///< `text`: why, in the engine's words; empty: it does not say.
    kRuns,      ///< On the nodes `text`.
    kChanges,   ///< Neither waits nor runs, and is not over: it is being set up or ended.
    kLost,      ///< Over: agents ended well by themselves, or the engine took the nodes. `text`: its word for it.
    kCanceled,  ///< Over, and another attempt would fare no better: somebody has ended it, or agents cannot start.
  };
  std::string id;
  std::string name;
  State state = State::kWaits;
  std::string text = {};
  std::string last_words = {};          ///< Of one that is over: what there is to say about its end.
  std::optional<Service> service = {};  ///< That has asked for it, where the engine can say so.

  bool is_over() const { return state == State::kLost || state == State::kCanceled; }
};

struct Capacity {
  int most_nodes = 0;  ///< That one attempt can have.
};

/// Something without which no node can be had.
struct Missing {
  std::string what;
  std::string remedy;  ///< What the reader does about it.
};

/// An engine that has nodes and gives them to attempts: a workload manager, or a list of hosts. EngineDriver makes a
/// Driver of it, which knows all the rest: orders, leases, deadlines, repetitions, the service's restarts, clean-up.
///
/// Each call blocks, has a deadline of its own, and may be repeated at any time. Error(kInvalidArgument | kNotFound)
/// when the engine refuses for good; any other Error when it does not answer, and may have done what it was asked for.
/// Thread-safe.
class NodeEngine {
 public:
  virtual ~NodeEngine() = default;

  /// As messages name it ("Slurm").
  virtual std::string title() const = 0;
  /// Whether people can find what it has given by its id, so that messages name that.
  virtual bool shows_ids() const { return true; }

  /// Asks for the nodes, and returns the engine's id of what it will give.
  virtual std::string ask(const NodeRequest& request) = 0;
  /// All that is ours, whoever of us has asked for it; what is over as long as the engine remembers it.
  virtual std::vector<Holding> list() = 0;
  /// Takes the nodes back, and ends what runs on them. One that is over, or not known, is fine.
  virtual void release(const std::string& id) = 0;
  /// Asks nobody.
  virtual Capacity capacity() const = 0;
  /// Sentences about nodes that nobody can have at present. As long as there are any, list() is called also while
  /// nothing is ours. Asks nobody.
  virtual std::vector<std::string> node_problems() const { return {}; }
  /// What ask() would hand over. Pure.
  virtual std::vector<Artifact> describe(const NodeRequest& request) const = 0;
  /// What is missing on this side for any node to be had.
  virtual std::vector<Missing> check() = 0;
};

}  // namespace gyre::jobs::drivers
