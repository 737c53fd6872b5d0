#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/metrics/series.h"

namespace gyre::app {

/// Error(kInvalidArgument) if `target` is one of the files that were read.
void refuse_own_input(const std::filesystem::path& target, const std::vector<std::string>& inputs);

/// name,rank,step,time,value: a line for each value, with its time in seconds since 1970.
std::string metrics_csv(const metrics::Run& run);

/// One object: "notes", and "series" with name, rank and points, each [step, time, value]. What is no number in JSON is
/// "NaN", "Infinity" or "-Infinity". `most_points`: of a series, see metrics::downsample(); 0: all.
std::string metrics_json(const metrics::Run& run, std::size_t most_points);

/// For the page: "runs", each that object with its "name". `names`: of the files. Points of which others were left out
/// have two more numbers: the count and the mean of metrics::SelectedPoint.
std::string metrics_report_json(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names,
                                std::size_t most_points);

/// A folder rank-N for each rank with a file of events that TensorBoard shows, each value under its name. Replaces what
/// was exported there from the same run; Error(kInvalidArgument) where the folder has another's.
void export_to_tensorboard(const metrics::Run& run, const std::filesystem::path& folder);

/// Facts about the run, and a line for each series.
std::string metrics_summary(const metrics::Run& run);

/// What differs between runs: their facts, and the last value of each series of each rank. `names`: of the files.
std::string metrics_comparison(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names);

}  // namespace gyre::app
