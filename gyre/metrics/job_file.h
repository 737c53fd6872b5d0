#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// The metrics of a job of the job server: files in its folder of logs, one for each launcher that its nodes start.

namespace gyre::metrics {

/// From a job service to `gyre run`: "BYTES:FILE", which keeps the job's metrics there, in so many bytes at most, where
/// its own options name no file.
constexpr const char* kJobFileVariable = "GYRE_JOB_METRICS";

struct JobFile {
  int attempt = 1;
  int node = 0;  ///< Of the attempt's.
  auto operator<=>(const JobFile&) const = default;
};

/// "gyre-1-0.metrics": attempts and nodes never write the same one.
std::string name_of(const JobFile& file);
/// Nothing for any other name.
std::optional<JobFile> job_file_named(std::string_view name);

/// What the variable says.
struct JobFileOrder {
  std::filesystem::path path;
  std::uint64_t most_bytes = 0;
};
std::string text_of(const JobFileOrder& order);
/// Nothing for any other text.
std::optional<JobFileOrder> parse_job_file_order(std::string_view text);

}  // namespace gyre::metrics
