#include "gyre/jobs/resources/job_end.h"

#include <fmt/format.h>

namespace gyre::jobs::resources {

namespace {

constexpr int kExitCodeMask = 0xff;

bool is_the_jobs(const ResourceError& error) {
  return error.code == error_code::kJobFailed || error.code == error_code::kPreparationFailed;
}

}  // namespace

int exit_code_of(const Job& job) {
  if (job.execution_state == ExecutionState::kSucceeded) return 0;
  const auto& errors = job.execution_info.errors;
  if (!errors.empty() && !is_the_jobs(errors.front())) return kNotTheJobsExitCode;
  const int code = job.execution_info.exit_code.value_or(1) & kExitCodeMask;
  return code == 0 ? 1 : code;
}

std::string sentence_about_end(const Job& job) {
  if (job.execution_state == ExecutionState::kSucceeded) return fmt::format("job '{}' succeeded", job.name.job);
  std::string text = fmt::format("job '{}' failed", job.name.job);
  if (const auto code = job.execution_info.exit_code) text += fmt::format(" with exit code {}", *code);
  for (const ResourceError& error : job.execution_info.errors) {
    text += fmt::format(": {}: {}", error.code, error.message);
  }
  return text;
}

}  // namespace gyre::jobs::resources
