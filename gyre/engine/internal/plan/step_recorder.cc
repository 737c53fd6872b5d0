#include "gyre/engine/internal/plan/step_recorder.h"

#include <algorithm>
#include <utility>

namespace gyre::engine::internal {

namespace {

void add(StepStatistics& total, const StepStatistics& step) {
  total.backward += step.backward;
  total.exchange += step.exchange;
  total.hidden += step.hidden;
  total.exposed += step.exposed;
  total.overtaken_buckets += step.overtaken_buckets;
  total.missing_tensors += step.missing_tensors;
}

}  // namespace

StepRecorder::StepRecorder(PlanStatistics plan)
    : finished_(std::move(plan)), times_(finished_.buckets.size()), complete_(finished_.buckets.size(), false) {}

void StepRecorder::begin(Time now) {
  if (begun_) return;
  begun_ = true;
  began_ = now;
}

void StepRecorder::bucket_ready(std::size_t bucket, Time now) {
  begin(now);
  times_[bucket].ready = now;
  complete_[bucket] = true;
  const auto earlier_end = complete_.begin() + static_cast<std::ptrdiff_t>(bucket);
  if (std::find(complete_.begin(), earlier_end, false) != earlier_end) ++overtaken_;
}

void StepRecorder::bucket_started(std::size_t bucket, Time now) { times_[bucket].start = now; }

void StepRecorder::bucket_ended(std::size_t bucket, Time now) { times_[bucket].end = now; }

void StepRecorder::closing(Time now, std::size_t missing_tensors) {
  begin(now);
  closed_ = now;
  missing_tensors_ = missing_tensors;
}

void StepRecorder::finished(Time now) {
  StepStatistics step;
  step.backward = closed_ - began_;
  step.exposed = now - closed_;
  step.overtaken_buckets = std::exchange(overtaken_, 0);
  step.missing_tensors = missing_tensors_;
  for (std::size_t index = 0; index < times_.size(); ++index) {
    const BucketTimes& times = times_[index];
    step.exchange += times.end - times.start;
    step.hidden += std::max(Time::duration::zero(), std::min(times.end, closed_) - times.start);
    BucketStatistics& bucket = finished_.buckets[index];
    bucket.ready = times.ready - began_;
    bucket.start = times.start - began_;
    bucket.end = times.end - began_;
  }
  finished_.last = step;
  add(finished_.total, step);
  ++finished_.steps;
  begun_ = false;
  complete_.assign(complete_.size(), false);
}

}  // namespace gyre::engine::internal
