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
///
/// A worker may announce its gradient first, because what it sends is made of it by an optimizer whose state a dropped
/// gradient must not change. The first `workers - backup` that announce one are admitted, and the step waits for them.
/// The others are refused once the step is decided; if one of those admitted dies or does something else, the first of
/// the others takes its place.
class Quorum {
 public:
  struct Verdict {
    std::uint64_t step = 0;         ///< Steps taken so far, this one included.
    std::vector<int> contributors;  ///< Whose gradients are averaged and applied now, ascending; they get the result.
    std::vector<int> late;          ///< Whose gradients are dropped; they get what there is …
    std::vector<int> asking;        ///< … and so do these, which have only asked.
    std::vector<int> admitted{};    ///< Whose announced gradients will be part of the next step.
    std::vector<int> refused{};     ///< Whose announced gradients are late.

    /// Whether anybody gets parameters: what all servers have to know.
    bool gives_values() const { return !contributors.empty() || !late.empty() || !asking.empty(); }

    bool operator==(const Verdict&) const = default;
  };
  using Verdicts = std::vector<Verdict>;

  /// Precondition: workers, servers >= 1; 0 <= backup < workers.
  Quorum(int workers, int servers, int backup);

  /// One more server has all that the worker has sent in its step; `asks`: a mere request for the parameters. To be
  /// called once for each server. A worker that was lost is ignored. Error(kProtocol) for one that has left.
  Verdicts ready(int worker, bool asks);
  /// The worker has a gradient, of which no server has anything yet. It waits until it is admitted or refused; once
  /// more admits it again. A worker that was lost is ignored. Error(kProtocol) in the middle of a step, or after it has
  /// left.
  Verdicts announce(int worker);
  /// The worker does something else, for which it may wait for other workers: no step waits for it. It gives up what it
  /// has announced.
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
    bool admitted = false;         ///< The current step waits for its gradient.
    bool complete = false;         ///< Its gradient of the current step waits for the verdict.
    int ready_servers = 0;         ///< Of its step.
    std::uint64_t seen_steps = 0;  ///< Of the parameters that it got last.
  };

  Worker& at(int worker) { return workers_.at(static_cast<std::size_t>(worker)); }
  std::ptrdiff_t places() const { return static_cast<std::ptrdiff_t>(workers_.size()) - backup_; }
  Verdict nothing() const { return {.step = steps_, .contributors = {}, .late = {}, .asking = {}}; }
  void give_up(int worker);
  Verdicts decide();
  void take_step(Verdict& verdict);
  void admit(Verdicts& verdicts);

  int servers_;
  int backup_;
  std::uint64_t steps_ = 0;
  std::vector<Worker> workers_;
  std::vector<int> announced_;  // Those that wait, in the order in which they have announced.
};

}  // namespace gyre::params
