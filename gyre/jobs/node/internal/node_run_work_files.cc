// What a NodeRun does about the files in the folder where its job started (ADR 85).
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/internal/node_run.h"
#include "gyre/jobs/node/internal/work_files.h"

namespace gyre::jobs::node::internal {

using orders::StopReason;

void NodeRun::keep_work_files() {
  const auto stopped = commands_.stopping();
  // Files of a node that has lost its lease would get in the way of the job's next attempt.
  if (!order().is_master() || (stopped && stopped->reason == StopReason::kLeaseLost)) return;
  WorkFiles files{.folder = work_folder(order(), folders_), .patterns = order().job.output_files};
  std::error_code failure;
  const bool has_started = std::filesystem::is_directory(std::filesystem::symlink_status(files.folder, failure));
  if (!task_.has_places || log_folder_.empty() || !has_started) return;
  const JobEnvironment environment = environment_of({});
  files.kept = environment.kept_files;
  files.others = {environment.log_folder,
                  environment.kept_files,
                  job_mount_root(order(), folders_),
                  folders_.host_file(order().job_name),
                  folders_.shared(order().job_name),
                  order().shared_folder};
  for (const OutputPlace& output : environment.outputs) files.others.emplace_back(output.path);
  std::optional<CodeContent> code;
  files.is_home = order().code_archive.empty();
  try {
    if (!files.is_home) files.code = &code.emplace(task_.code_descriptor);
  } catch (const Error& error) {
    journal_.note(fmt::format("all files in the job's work folder count as new: {}", error.what()));
  }
  const std::chrono::minutes longest = longest_keeping(order().job);
  const Deadline deadline = Deadline::after(longest);
  const WorkFilesReport report = internal::keep_work_files(files, [&]() -> std::string {
    if (commands_.leaving()) throw LeaveNow();
    if (!stopped && commands_.stopping()) return "the node was asked to end";
    return deadline.passed() ? fmt::format("it took longer than {} min", longest.count()) : "";
  });
  for (const std::string& sentence : sentences_of(report)) journal_.note(sentence);
}

}  // namespace gyre::jobs::node::internal
