#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/timeline.h"
#include "gyre/group/group.h"
#include "gyre/params/rows.h"
#include "gyre/params/setup.h"

namespace gyre::params {

/// What a worker exchanges messages with servers through. Collective among all ranks of the group, as soon as they have
/// joined: servers run serve(). The group must outlive it. Error(kInvalidArgument) where this rank is not a worker.
class Connection {
 public:
  Connection(group::Group& group, const Layout& layout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// For a worker that ends without having made a Client: nobody waits for it, and it leaves the group.
  void leave_without_training();

 private:
  friend class Client;
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// A worker's side of the parameter servers. Every wait ends when the group fails. Not thread-safe.
///
/// Gradients and parameters are spans of float32, one for each tensor of the setup, in its order and of its sizes; what
/// is not so is a bug of the caller. Whole tables are such spans, too, apart from the tensors.
class Client {
 public:
  using Values = std::span<const std::span<float>>;
  using Gradients = std::span<const std::span<const float>>;

  /// Tells the servers the setup; waits for no other worker. Errors are those of check() and of the group.
  Client(std::unique_ptr<Connection> connection, TrainingSetup setup);
  /// With a connection of its own.
  Client(group::Group& group, const Layout& layout, TrainingSetup setup);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// From now on this worker's exchanges are shown in `timeline`, while that runs: how long each block of the
  /// parameters was on its way to its server and back, in rows that bear the names of its tensors, a name for each
  /// tensor of the setup.
  void trace(std::shared_ptr<Timeline> timeline, std::span<const std::string> tensor_names);

  int worker() const;
  int workers() const;

  /// Memory for values of all tensors, zero at first, in one net::Segment, which stays as long as the client. Servers
  /// of this host work on it: a step whose gradients and results lie there moves no bytes, and takes less than half of
  /// the time. Error(kResourceExhausted).
  Values memory();

  /// The values of the first worker, in their order, that has not left or died become the servers', and so everybody's.
  /// Collective among the workers, who are between two steps. Not with Rule::kAverage, where servers hold no
  /// parameters.
  /// With `states`, of the tensors and then the tables, the first worker's become the optimizer's state; otherwise that
  /// stays as it is.
  void initialise(Values parameters, Values tables = {}, std::span<const TensorState> states = {});

  /// The servers' values as they are now. Not with Rule::kAverage.
  void pull(Values parameters, Values tables = {});

  /// The optimizer's state, of the tensors and then the tables, as it is now: at no particular step, where others are
  /// in one.
  std::vector<TensorState> pull_state();

  /// Waits until all workers are here, and with all steps taken gives each of them the servers' values, the same ones:
  /// nobody goes on before everybody has them. Collective among the workers, however far apart their steps are, but in
  /// sync without backup workers, where they have to be equal (kMismatch on all). With Rule::kAverage `parameters` are
  /// left alone.
  void settle(Values parameters, Values tables = {});

  /// What has become of a step's gradients.
  struct Outcome {
    bool accepted = true;  ///< False where they came too late and were dropped.
    /// With a quorum: whose gradients made up the step. Ascending.
    std::vector<int> contributors;
  };

  /// With backup workers: whether the gradient that this worker has now, of the values that it got last, will be part
  /// of a step. If it will, the next call is step(); otherwise it is late, and the step is over for which it was meant.
  bool announce();

  /// From the next step on these are the optimizer's options, by group. Error(kInvalidArgument) for those that cannot
  /// follow the present ones (UpdateRule::check_successor()).
  void set_options(std::vector<UpdateOptions> groups);

  /// One step: `gradients` go to the servers, and what they answer to `results`: the new parameters, or with
  /// Rule::kAverage the averaged gradients. Both directions run at the same time, block by block. `gradients` and
  /// `results` may be the same memory, tensor by tensor, and best are memory().
  /// `present`: which tensors, and then which tables, have a gradient; empty: all. Those of a step that nobody has are
  /// left alone; a worker without one counts as zeros, which have to be there.
  /// `rows`: by table, the gradients of some of its rows. Error(kInvalidArgument), before anything is sent, for rows
  /// that the table does not have.
  Outcome step(Gradients gradients, Values results, std::vector<bool> present = {}, std::span<const Rows> rows = {});

  /// By table, the rows, in any order, that differ since the last step, pull or settlement of this worker, whoever has
  /// changed them.
  const std::vector<Rows>& changed_rows() const;

  /// Adds up what the workers that have not left give, in the order of the workers, in place. Each of them calls it as
  /// often, with as many values, however far apart their steps are, but in sync without backup workers, where they have
  /// to be equal (kMismatch on all). For a handful of metrics.
  void sum(std::span<double> values);

  /// The bytes of the first worker, in their order, that has not left or died become everybody's, from worker to
  /// worker. Collective among the workers; equally many on each (kMismatch). Where losses are survived, everybody gets
  /// the same bytes whoever dies.
  void broadcast(std::span<std::byte> bytes);

  /// This worker has no more data: nobody waits for it any more. The last call; the destructor makes it, and leaves the
  /// group, unless an exception is on its way.
  void leave();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace gyre::params
