#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gyre/metrics/overview.h"
#include "gyre/page/charts.h"
#include "gyre/page/job_state.h"

namespace gyre::page::internal {

/// A job's state and charts, and the texts that they are to all who ask, each made again when there is news. Not
/// thread-safe.
class JobTexts {
 public:
  JobTexts(std::string name, const Charts::Limits& limits) : charts(limits), name_(std::move(name)) {}

  JobState state{};
  metrics::Overview overview{};
  Charts charts;
  std::map<int, std::uint64_t> log_bytes{};  ///< By rank.

  // `version`: another one where the answer is another one.
  std::shared_ptr<const std::string> job_json(std::uint64_t version);
  std::shared_ptr<const std::string> index_json(std::uint64_t version);
  std::shared_ptr<const std::string> chart_json(const std::string& name, const ChartRange& range,
                                                std::uint64_t version);

 private:
  struct Kept {
    std::uint64_t version = 0;
    std::shared_ptr<const std::string> text;
  };

  static std::shared_ptr<const std::string> keep(Kept& kept, std::uint64_t version,
                                                 const std::function<std::string()>& make);

  std::string name_;
  Kept job_;
  Kept index_;
  std::map<std::string, Kept> kept_charts_;
};

}  // namespace gyre::page::internal
