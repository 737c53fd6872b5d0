#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/internal/file_copy.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::node::internal {

/// The folder in which a job's processes have started, once they have ended, and what of it is wanted (ADR 85).
struct WorkFiles {
  std::filesystem::path folder;
  const CodeContent* code = nullptr;  ///< What was in it before the job. None: nothing.
  /// Folders and files that may lie in it without being the job's work: its logs and outputs, the node's own.
  std::vector<std::filesystem::path> others{};
  bool is_home = false;                 ///< Then hidden files in it are caches of programs, which nobody misses.
  std::vector<std::string> patterns{};  ///< spec::FilePattern each.
  /// Where copies go, under their paths. Made for the first of them, in the place of what an earlier attempt has left
  /// there; the folder above it exists.
  std::filesystem::path kept{};
};

struct FileCount {
  static constexpr std::size_t kMostNames = 3;

  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> names;  ///< The first of them, in order; printable, and not long.

  void add(const std::string& path, std::uint64_t bytes_more, const std::string& why = {});
};

struct WorkFilesReport {
  FileCount kept;
  FileCount left;                      ///< Named by no pattern.
  FileCount failed;                    ///< "model.pt (No space left on device)", "latest (a link)".
  std::vector<std::string> unmatched;  ///< Patterns.
  std::string interrupted;             ///< Why not all of the folder was looked at.
};

/// Of a job's files; within what a Slurm job has beyond its maxWallClockTime. Without patterns they are only counted.
inline std::chrono::minutes longest_keeping(const spec::JobSpec& job) {
  return std::chrono::minutes(job.output_files.empty() ? 1 : 20);
}

/// Copies the regular files that are new, or differ from the code, and that a pattern names; counts the others. The job
/// may have left anything there, and may still change it: no link is followed, nothing but regular files is read, and
/// whatever fails is in the report. To be called with the rights of the job's account. Throws only what `interruption`
/// does.
WorkFilesReport keep_work_files(const WorkFiles& files, const Interruption& interruption);

/// For the job's events, with the most important first; none where there is nothing to say.
std::vector<std::string> sentences_of(const WorkFilesReport& report);

/// Of files that a node other than the first has in an output directory in its own folder.
std::string sentence_about_outputs(const std::string& id, const FileCount& files);

}  // namespace gyre::jobs::node::internal
