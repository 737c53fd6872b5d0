#include "gyre/jobs/node/internal/attempt_ends.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/spec/duration.h"

namespace gyre::jobs::node::internal {

using orders::ExitRecord;
using orders::kNoRoom;
using orders::kNotStarted;
using orders::StopReason;
using orders::WorkOrder;

namespace {

/// Of a disk, or of what an account may use of it.
bool is_out_of_room(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->code() == ErrorCode::kResourceExhausted;
  const auto* system = dynamic_cast<const std::system_error*>(&error);  // std::filesystem's too.
  if (system == nullptr) return false;
  const std::error_code& code = system->code();  // std::errc has no name for EDQUOT.
  return code == std::errc::no_space_on_device ||
         (code.value() == EDQUOT && code.category() != std::iostream_category());
}

}  // namespace

AttemptEnds internal_failure(const WorkOrder& order, const std::string& what) {
  return {resources::kNotTheJobsExitCode,
          resources::ResourceError{resources::error_code::kInternal, what, {{"node", order.here().id}}}};
}

AttemptEnds internal_failure(const WorkOrder& order, const std::exception& error, bool begun) {
  AttemptEnds end = internal_failure(order, std::string(error.what()));
  if (!begun && is_out_of_room(error)) end.error->details["reason"] = kNoRoom;
  return end;
}

AttemptEnds start_failure(const WorkOrder& order, const std::string& what) {
  AttemptEnds end = internal_failure(order, what);
  end.error->details["reason"] = kNotStarted;
  return end;
}

AttemptEnds unusable_path(const WorkOrder& order, const std::string& what, const std::string& kind,
                          const std::string& place) {
  const std::string& node = order.here().id;
  return {resources::kNotTheJobsExitCode, resources::ResourceError{resources::error_code::kUnusablePath,
                                                                   fmt::format("node {} {}", node, what),
                                                                   {{"node", node}, {kind, place}}}};
}

AttemptEnds stopped_because(StopReason reason, const WorkOrder& order) {
  const std::string& node = order.here().id;
  const auto failed = [&](const char* code, const std::string& message) {
    return AttemptEnds{resources::kTerminatedExitCode,
                       resources::ResourceError{code, message, {{"node", node}, {"reason", name_of(reason)}}}, true};
  };
  switch (reason) {
    case StopReason::kRequest: return failed(resources::error_code::kJobFailed, "the job was terminated");
    case StopReason::kWallClock:
      return failed(resources::error_code::kJobFailed,
                    fmt::format("the job was ended because constraints.maxWallClockTime, {}, has passed",
                                spec::iso_8601_duration(order.job.max_wall_clock_time)));
    case StopReason::kLeaseLost:
      return {resources::kNotTheJobsExitCode,
              resources::ResourceError{resources::error_code::kInternal,
                                       fmt::format("node {} could not reach the service for too long", node),
                                       {{"node", node}, {"reason", name_of(reason)}}},
              true};
    case StopReason::kOtherNode:
    case StopReason::kPreempted: break;
  }
  return {resources::kTerminatedExitCode, std::nullopt, true};
}

ExitRecord record_of(const AttemptEnds& end, std::int64_t started_us) {
  ExitRecord record;
  record.exit_code = end.exit_code;
  record.error = end.error;
  record.asked_to_end = end.asked_to_end;
  record.was_done = end.was_done;
  record.started_us = started_us;
  record.ended_us = wall_clock_us();
  return record;
}

std::vector<std::string> sentences_about(const AttemptEnds& end) {
  std::vector<std::string> sentences;
  if (end.error) sentences.push_back(fmt::format("{}: {}", end.error->code, end.error->message));
  sentences.push_back(fmt::format("ended with exit code {}", end.exit_code));
  return sentences;
}

}  // namespace gyre::jobs::node::internal
