#pragma once

#include <fmt/format.h>

#include <atomic>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/internal/join_watch.h"
#include "gyre/engine/internal/plan/plan_layout.h"
#include "gyre/engine/internal/plan/plan_registry.h"
#include "gyre/engine/internal/plan/step_recorder.h"
#include "gyre/engine/internal/stall/stall_inquiry.h"
#include "gyre/engine/plan.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/lane.h"

namespace gyre::engine::internal {

/// How long a rank waits for the end of a step before it says so, and again; 0: never.
struct StallAlarm {
  std::chrono::milliseconds warning{0};
  std::chrono::milliseconds failure{0};
  std::chrono::milliseconds deadlock{
      0};  ///< When it says so for the first time, so that a deadlock is found; then ever more rarely.
  /// Tells the coordinator. Any thread.
  std::function<void(const StalledStep&)> raise;
};

/// See EngineOptions.
struct PlanTimeouts {
  std::chrono::milliseconds collective{0};
  std::chrono::milliseconds shutdown{0};
};

/// A plan with its lane and the thread that walks its buckets in order, step after step.
class PlanLane final : public Plan {
 public:
  /// Every rank makes it with equal arguments (make_plan has compared them). `buckets`: what is known of the layout's
  /// buckets beforehand.
  PlanLane(group::Group& group, std::uint64_t channel, std::vector<PlanTensor> tensors, PlanOptions options,
           PlanLayout layout, std::vector<BucketStatistics> buckets, JoinWatch& joins, const StallAlarm& alarm,
           const TimelineRows& timeline, std::shared_ptr<PlanRegistry> registry, const PlanTimeouts& timeouts);
  ~PlanLane() override;

  std::size_t tensor_count() const override { return tensors_.size(); }
  std::size_t bucket_count() const override { return layout_.buckets.size(); }
  std::span<std::byte> tensor(std::size_t index) override;
  void mark_ready(std::size_t index) override;
  void contribute(std::size_t index, std::span<const std::byte> contribution) override;
  bool is_ready(std::size_t index) const override;
  void finish_step() override;
  bool finish_step_for(std::chrono::milliseconds patience) override;
  std::uint64_t step() const override;
  PlanStatistics statistics() const override;
  LaneStatistics lane_statistics() const;

  std::uint64_t channel() const { return lane_.channel(); }
  const StepMark& step_mark() const { return step_mark_; }
  /// Any thread: see JoinWatch.
  void announce_begun_step() const;
  /// The step whose end somebody waits for.
  std::optional<PlanStep> awaited_step() const;

  /// The thread that waits for the end of the step under way, and what for.
  std::optional<std::pair<ThreadIdentity, Awaited>> wait() const;
  /// The step under way if this rank has not brought all gradients to it, and the thread that has brought them so far:
  /// the one that ended the last step; none before that.
  std::optional<std::pair<ThreadIdentity, PlanStep>> owed() const;

  /// Fails the plan with kShutDown and ends its thread, after the buckets whose tensors are all in: other ranks may
  /// count on them. When those do not take part within the shutdown timeout, the group is aborted.
  void shutdown();

 private:
  void run();
  /// False when the plan is to end.
  bool wait_for_bucket();
  /// The next bucket's tensors are in, and it is not reduced yet.
  bool bucket_is_due() const GYRE_REQUIRES(mutex_) {
    return next_bucket_ < layout_.buckets.size() && missing_[next_bucket_] == 0;
  }
  void reduce(const PlanBucket& bucket);
  /// "sum of 'fc.weight' and 3 more in step 7 of gradient exchange 'optimizer.1'".
  std::string describe(const PlanBucket& bucket) const;
  void begin_step() GYRE_REQUIRES(mutex_);
  void mark_step_begun();
  /// What is not in contributes zeros.
  void close_step() GYRE_REQUIRES(mutex_);
  void fail(const Error& failure);
  /// When the wait for the end of the step has lasted so long that it is to be reported (again).
  SteadyClock::time_point next_alarm() const GYRE_REQUIRES(mutex_);
  /// Since the step was closed: once, twice, four times the limit, … and in even steps after long.
  std::chrono::milliseconds next_deadlock_check() const GYRE_REQUIRES(mutex_);
  void raise_alarm_when_due() GYRE_REQUIRES(mutex_);

  group::Group& group_;
  const std::vector<PlanTensor> tensors_;
  const PlanOptions options_;
  const PlanLayout layout_;
  JoinWatch& joins_;
  const StallAlarm& alarm_;
  StepMark step_mark_;
  const TimelineRows& timeline_;
  const std::string work_row_ = fmt::format("gyre: gradient exchange '{}'", options_.name);
  const std::shared_ptr<PlanRegistry> registry_;
  const std::chrono::milliseconds shutdown_timeout_;
  group::Lane lane_;
  std::span<std::byte> arena_;
  std::vector<float> residuals_;  // The thread's; as the arena, or empty without error feedback.

  mutable Mutex mutex_;
  ConditionVariable bucket_ready_;  // For the thread.
  ConditionVariable step_done_;     // For finish_step and shutdown.
  std::vector<bool> ready_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::size_t> missing_ GYRE_GUARDED_BY(mutex_);  // Tensors per bucket that are not in yet.
  std::size_t next_bucket_ GYRE_GUARDED_BY(mutex_) = 0;
  StepRecorder recorder_ GYRE_GUARDED_BY(mutex_);
  bool stopping_ GYRE_GUARDED_BY(mutex_) = false;
  bool closing_step_ GYRE_GUARDED_BY(mutex_) = false;         // finish_step has zeroed what was missing,
  SteadyClock::time_point closed_ GYRE_GUARDED_BY(mutex_){};  // then,
  int warnings_ GYRE_GUARDED_BY(mutex_) = 0;                  // and has since complained so often
  bool gave_up_ GYRE_GUARDED_BY(mutex_) = false;              // and for the last time.
  int deadlock_checks_ GYRE_GUARDED_BY(mutex_) = 0;           // Asked for since it was closed.
  ThreadIdentity closer_ GYRE_GUARDED_BY(mutex_);             // Who ends this step, while it is being closed.
  ThreadIdentity finisher_ GYRE_GUARDED_BY(mutex_);           // Who ended the last step; none before that.
  std::optional<Error> failure_ GYRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gyre::engine::internal
