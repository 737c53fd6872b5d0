#pragma once

#include <cstdint>
#include <vector>

namespace gyre::params {

/// Which workers' gradients make up a step where a step does not wait for all of them: backup workers (Chen et al.,
/// arXiv 1604.00981), and workers that may die. One verdict for each gradient of a worker, over all its blocks: the
/// server that holds the Quorum decides, and all servers carry out its verdicts in their order. So the contributors of
/// a step are the same on all servers, and no gradient is used twice or in part. Not thread-safe; pure.
///
/// A worker's gradient is complete when all servers have all its blocks. The first `workers - backup` that are complete
/// make up the step, or all workers at work where these are fewer. A gradient of an earlier step's parameters that is
/// complete after that is late: it is dropped, and its worker gets the parameters as they are.
class Quorum {
 public:
  struct Verdict {
    std::uint64_t step = 0;         ///< Steps taken so far, this one included.
    std::vector<int> contributors;  ///< Whose gradients are averaged and applied now, ascending; they get the result.
    std::vector<int> late;          ///< Whose gradients are dropped; they get what there is …
    std::vector<int> asking;        ///< … and so do these, which have only asked.

    bool operator==(const Verdict&) const = default;
  };
  using Verdicts = std::vector<Verdict>;

  /// Precondition: workers, servers >= 1; 0 <= backup < workers.
  Quorum(int workers, int servers, int backup);

  /// One more server has all that the worker has sent in its step; `asks`: a mere request for the parameters. To be
  /// called once for each server. A worker that was lost is ignored. Error(kProtocol) for one that has left.
  Verdicts ready(int worker, bool asks);
  /// The worker does something else, for which it may wait for other workers: no step waits for it.
  Verdicts pause(int worker);
  Verdicts resume(int worker);
  /// It has run out of data. Error(kProtocol) in the middle of a step.
  Verdicts leave(int worker);
  /// It has died. What it had sent does not count any more, unless a verdict on it was given before.
  Verdicts lose(int worker);

  int active_workers() const;

 private:
  struct Worker {
    bool active = true;
    bool lost = false;
    bool pauses = false;
    bool complete = false;         ///< Its gradient of the current step waits for the verdict.
    int ready_servers = 0;         ///< Of its step.
    std::uint64_t seen_steps = 0;  ///< Of the parameters that it got last.
  };

  Worker& at(int worker) { return workers_.at(static_cast<std::size_t>(worker)); }
  Verdicts decide();

  int servers_;
  int backup_;
  std::uint64_t steps_ = 0;
  std::vector<Worker> workers_;
};

}  // namespace gyre::params
