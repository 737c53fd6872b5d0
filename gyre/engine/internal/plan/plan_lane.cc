#include "gyre/engine/internal/plan/plan_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/thread.h"
#include "gyre/collectives/collectives.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/lane_work.h"
#include "gyre/engine/internal/plan/error_feedback.h"

namespace gyre::engine::internal {

namespace {

group::LaneOptions plan_lane_options(const group::Group& group, std::uint64_t channel, std::size_t arena_bytes,
                                     std::chrono::milliseconds timeout) {
  return {channel, collectives::segment_bytes_for(group.topology().local_size(), arena_bytes), timeout};
}

std::span<float> floats_in(std::span<std::byte> arena, const PlanBucket& bucket) {
  return {reinterpret_cast<float*>(arena.data() + bucket.offset_bytes), bucket.size_bytes / sizeof(float)};
}

PlanStatistics before_the_first_step(const PlanOptions& options, const PlanLayout& layout,
                                     std::vector<BucketStatistics> buckets) {
  return {.name = options.name,
          .steps = 0,
          .arena_bytes = layout.arena_bytes,
          .buckets = std::move(buckets),
          .last = {},
          .total = {}};
}

/// In a trace, where it stands among the other sums.
std::string row_of(const PlanTensor& tensor) { return "allreduce." + tensor.name; }

}  // namespace

PlanLane::PlanLane(group::Group& group, std::uint64_t channel, std::vector<PlanTensor> tensors, PlanOptions options,
                   PlanLayout layout, std::vector<BucketStatistics> buckets, JoinWatch& joins, const StallAlarm& alarm,
                   const TimelineRows& timeline, std::shared_ptr<PlanRegistry> registry, const PlanTimeouts& timeouts)
    : group_(group),
      tensors_(std::move(tensors)),
      options_(std::move(options)),
      layout_(std::move(layout)),
      joins_(joins),
      alarm_(alarm),
      timeline_(timeline),
      registry_(std::move(registry)),
      shutdown_timeout_(timeouts.shutdown),
      lane_(group, plan_lane_options(group, channel, layout_.arena_bytes, timeouts.collective)),
      arena_(collectives::arena(lane_)),
      recorder_(before_the_first_step(options_, layout_, std::move(buckets))) {
  GYRE_CHECK(arena_.size() >= layout_.arena_bytes);
  if (options_.error_feedback && options_.wire != WireFormat::kNative && !group_.topology().one_host()) {
    residuals_.resize(layout_.arena_bytes / sizeof(float));
  }
  {
    const MutexLock lock(mutex_);
    begin_step();
  }
  registry_->add(this);
  try {
    thread_ = start_thread(fmt::format("plan '{}'", options_.name), [this] { run(); });
  } catch (const Error&) {
    registry_->remove(this);
    throw;
  }
}

PlanLane::~PlanLane() {
  shutdown();
  registry_->remove(this);
}

std::span<std::byte> PlanLane::tensor(std::size_t index) {
  return arena_.subspan(layout_.tensor_offsets_bytes.at(index), layout_.tensor_sizes_bytes.at(index));
}

void PlanLane::begin_step() {
  ready_.assign(tensors_.size(), false);
  missing_.clear();
  for (const PlanBucket& bucket : layout_.buckets) missing_.push_back(bucket.tensors.size());
  next_bucket_ = 0;
  closing_step_ = false;
}

void PlanLane::mark_ready(std::size_t index) {
  const MutexLock lock(mutex_);
  if (failure_) throw Error(*failure_);
  GYRE_CHECK(index < tensors_.size());
  if (ready_[index]) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' was contributed twice in one step: its gradient was computed again before the step ended. "
                    "Call step() or synchronize() between, or raise backward_passes_per_step",
                    tensors_[index].name));
  }
  mark_step_begun();
  ready_[index] = true;
  if (timeline_.enabled()) timeline_.begin(row_of(tensors_[index]), "QUEUE");
  const auto now = SteadyClock::now();
  recorder_.contribution(now);
  const std::size_t bucket = layout_.bucket_of_tensor[index];
  if (--missing_[bucket] > 0) return;
  recorder_.bucket_ready(bucket, now);
  bucket_ready_.notify_one();
}

void PlanLane::contribute(std::size_t index, std::span<const std::byte> contribution) {
  const std::span<std::byte> place = tensor(index);
  GYRE_CHECK(contribution.size() == place.size());
  collectives::copy_for_others(place.data(), contribution.data(), place.size());
  mark_ready(index);
}

bool PlanLane::is_ready(std::size_t index) const {
  const MutexLock lock(mutex_);
  return ready_.at(index);
}

std::uint64_t PlanLane::step() const {
  const MutexLock lock(mutex_);
  return recorder_.statistics().steps;
}

PlanStatistics PlanLane::statistics() const {
  const MutexLock lock(mutex_);
  PlanStatistics statistics = recorder_.statistics();
  if (closing_step_) statistics.awaited = SteadyClock::now() - closed_;
  return statistics;
}

LaneStatistics PlanLane::lane_statistics() const { return {fmt::format("plan '{}'", options_.name), lane_.counters()}; }

void PlanLane::finish_step() {
  constexpr std::chrono::hours kPatience{1};
  while (!finish_step_for(kPatience)) {
  }
}

bool PlanLane::finish_step_for(std::chrono::milliseconds patience) {
  const auto until = SteadyClock::now() + patience;
  const MutexLock lock(mutex_);
  if (!closing_step_ && !failure_) {
    mark_step_begun();
    close_step();
    closer_ = ThreadIdentity::current();
  }
  while (!failure_ && next_bucket_ < layout_.buckets.size()) {
    step_done_.wait_until(mutex_, std::min(until, next_alarm()));
    if (next_bucket_ < layout_.buckets.size()) raise_alarm_when_due();
    if (SteadyClock::now() >= until) break;
  }
  if (failure_) throw Error(*failure_);
  if (next_bucket_ < layout_.buckets.size()) return false;
  const auto now = SteadyClock::now();
  recorder_.finished(now);
  timeline_.add(kProgramRow, {.name = kWaitPhase, .began = closed_, .lasted = now - closed_, .detail = options_.name});
  finisher_ = ThreadIdentity::current();
  step_mark_.end();
  begin_step();
  return true;
}

std::chrono::milliseconds PlanLane::next_deadlock_check() const {
  constexpr int kMostDoublings = 12;
  return alarm_.deadlock * (1 << std::min(deadlock_checks_, kMostDoublings)) +
         alarm_.deadlock * (1 << kMostDoublings) * std::max(deadlock_checks_ - kMostDoublings, 0);
}

SteadyClock::time_point PlanLane::next_alarm() const {
  SteadyClock::time_point next = SteadyClock::time_point::max();
  if (alarm_.warning.count() > 0) next = closed_ + (warnings_ + 1) * alarm_.warning;
  if (alarm_.failure.count() > 0 && !gave_up_) next = std::min(next, closed_ + alarm_.failure);
  if (alarm_.deadlock.count() > 0) next = std::min(next, closed_ + next_deadlock_check());
  return next;
}

void PlanLane::raise_alarm_when_due() {
  const auto now = SteadyClock::now();
  if (now < next_alarm()) return;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - closed_);
  if (alarm_.warning.count() > 0) warnings_ = static_cast<int>(waited / alarm_.warning);
  gave_up_ = alarm_.failure.count() > 0 && waited >= alarm_.failure;
  while (alarm_.deadlock.count() > 0 && waited >= next_deadlock_check()) ++deadlock_checks_;
  alarm_.raise({{channel(), step_mark_.ended()}, options_.name, waited});
}

std::optional<PlanStep> PlanLane::awaited_step() const {
  const MutexLock lock(mutex_);
  if (!closing_step_ || next_bucket_ == layout_.buckets.size()) return std::nullopt;
  return PlanStep{channel(), step_mark_.ended()};
}

std::optional<std::pair<ThreadIdentity, Awaited>> PlanLane::wait() const {
  const auto step = awaited_step();
  if (!step) return std::nullopt;
  const MutexLock lock(mutex_);
  Awaited awaited;
  awaited.step = step;
  awaited.description = fmt::format("the end of step {} of gradient exchange '{}'", step->step + 1, options_.name);
  return std::pair(closer_, std::move(awaited));
}

std::optional<std::pair<ThreadIdentity, PlanStep>> PlanLane::owed() const {
  const MutexLock lock(mutex_);
  if (closing_step_ || failure_ || stopping_) return std::nullopt;
  const bool complete = std::ranges::all_of(missing_, [](std::size_t count) { return count == 0; });
  if (complete) return std::nullopt;
  return std::pair(finisher_, PlanStep{channel(), step_mark_.ended()});
}

void PlanLane::mark_step_begun() {
  const auto begun = step_mark_.begin();
  if (begun && joins_.somebody_has_joined()) joins_.announce({channel(), *begun});
}

void PlanLane::announce_begun_step() const {
  if (const auto begun = step_mark_.begun()) joins_.announce({channel(), *begun});
}

void PlanLane::close_step() {
  closing_step_ = true;
  const auto now = SteadyClock::now();
  closed_ = now;
  warnings_ = 0;
  deadlock_checks_ = 0;
  gave_up_ = false;
  recorder_.closing(now, static_cast<std::size_t>(std::count(ready_.begin(), ready_.end(), false)));
  for (const PlanBucket& bucket : layout_.buckets) {
    for (const std::size_t index : bucket.tensors) {
      if (ready_[index]) continue;
      const auto place = tensor(index);
      std::fill(place.begin(), place.end(), std::byte{0});
      ready_[index] = true;
      if (timeline_.enabled()) timeline_.begin(row_of(tensors_[index]), "QUEUE");
      const std::size_t number = layout_.bucket_of_tensor[index];
      if (--missing_[number] == 0) recorder_.bucket_ready(number, now);
    }
  }
  bucket_ready_.notify_one();
}

void PlanLane::run() {
  try {
    while (wait_for_bucket()) {
      std::size_t index = 0;
      {
        const MutexLock lock(mutex_);
        index = next_bucket_;
        recorder_.bucket_started(index, SteadyClock::now());
      }
      try {
        reduce(layout_.buckets[index]);
      } catch (const std::exception& error) {
        throw name_collective(error, describe(layout_.buckets[index]), group_);
      }
      const MutexLock lock(mutex_);
      recorder_.bucket_ended(index, SteadyClock::now());
      ++next_bucket_;
      if (stopping_ || next_bucket_ == layout_.buckets.size()) step_done_.notify_all();
    }
  } catch (const std::exception& error) {
    const Error seen = as_error(error);
    group_.abort(seen);
    // A rank that has left the group aborts nothing.
    fail(group_.abort_signal().reason().value_or(seen));
  }
}

bool PlanLane::wait_for_bucket() {
  const MutexLock lock(mutex_);
  while (!bucket_is_due()) {
    if (stopping_) return false;
    bucket_ready_.wait(mutex_);
  }
  return true;
}

void PlanLane::reduce(const PlanBucket& bucket) {
  const bool traced = timeline_.enabled();
  for (const std::size_t index : bucket.tensors) {
    if (!traced) break;
    timeline_.end(row_of(tensors_[index]));
    timeline_.begin(row_of(tensors_[index]), "ALLREDUCE");
  }
  const bool compensated = !residuals_.empty() && bucket.type == DataType::kFloat32;
  if (compensated) {
    compensate(floats_in(arena_, bucket), floats_in(std::as_writable_bytes(std::span(residuals_)), bucket),
               options_.wire, static_cast<float>(options_.prescale));
  }
  const collectives::Reduction reduction{.type = bucket.type,
                                         .operation = options_.operation,
                                         .prescale = compensated ? 1.0 : options_.prescale,
                                         .postscale = options_.postscale,
                                         .wire = options_.wire};
  const LaneWork work(lane_, timeline_, work_row_);
  collectives::allreduce_in_arena(lane_, bucket.offset_bytes, bucket.size_bytes, reduction);
  for (const std::size_t index : bucket.tensors) {
    if (traced) timeline_.end(row_of(tensors_[index]));
  }
}

std::string PlanLane::describe(const PlanBucket& bucket) const {
  const std::size_t others = bucket.tensors.size() - 1;
  return fmt::format("sum of '{}'{} in step {} of gradient exchange '{}'", tensors_[bucket.tensors.front()].name,
                     others == 0 ? "" : fmt::format(" and {} more", others), step_mark_.ended() + 1, options_.name);
}

void PlanLane::fail(const Error& failure) {
  const MutexLock lock(mutex_);
  if (!failure_) failure_ = failure;
  step_done_.notify_all();
}

void PlanLane::shutdown() {
  bool stuck = false;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    bucket_ready_.notify_all();
    const auto until = SteadyClock::now() + shutdown_timeout_;
    while (bucket_is_due() && !failure_ && !stuck) {
      stuck = !step_done_.wait_until(mutex_, until) && SteadyClock::now() >= until;
    }
  }
  if (stuck) {
    group_.abort(Error(ErrorCode::kAborted,
                       fmt::format("{} ended in the middle of a step of gradient exchange '{}', and not all "
                                   "ranks took part in what it had begun",
                                   group_.topology().describe(group_.rank()), options_.name)));
  }
  if (thread_.joinable()) thread_.join();
  fail(Error(ErrorCode::kShutDown, "the engine was shut down on this rank"));
}

}  // namespace gyre::engine::internal
