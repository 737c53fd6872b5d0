#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// What a job of the job server keeps in its folder of logs beside these: its metrics, a file for each launcher that its
// nodes start, and the timelines of its ranks.

namespace gyre::metrics {

/// From a job service to `gyre run`: "BYTES:FILE", which keeps the job's metrics there, in so many bytes at most, where
/// its own options name no file.
constexpr const char* kJobFileVariable = "GYRE_JOB_METRICS";

/// From a job service to each rank: "BYTES:FILE", with "{rank}" in its name (base/rank_file.h), where it writes its
/// timeline unless its program's user names another file. The ranks of a node have so many bytes together.
constexpr const char* kJobTimelineVariable = "GYRE_JOB_TIMELINE";

struct JobFile {
  int attempt = 1;
  int node = 0;  ///< Of the attempt's.
  auto operator<=>(const JobFile&) const = default;
};

/// "gyre-1-0.metrics": attempts and nodes never write the same one.
std::string name_of(const JobFile& file);
/// Nothing for any other name.
std::optional<JobFile> job_file_named(std::string_view name);

/// "gyre-1-timeline-{rank}.json"
std::string name_of_timelines(int attempt);
struct JobTimelineFile {
  int attempt = 1;
  int rank = 0;
};
/// Nothing for any other name.
std::optional<JobTimelineFile> job_timeline_named(std::string_view name);

/// What the variables say.
struct JobFileOrder {
  std::filesystem::path path;
  std::uint64_t most_bytes = 0;
};
std::string text_of(const JobFileOrder& order);
/// Nothing for any other text.
std::optional<JobFileOrder> parse_job_file_order(std::string_view text);

}  // namespace gyre::metrics
