#include "gyre/page/internal/job_texts.h"

#include <cmath>

namespace gyre::page::internal {

namespace {

constexpr std::size_t kMostKeptCharts = 256;

}  // namespace

std::shared_ptr<const std::string> JobTexts::keep(Kept& kept, std::uint64_t version,
                                                  const std::function<std::string()>& make) {
  if (!kept.text || kept.version != version) {
    kept = {.version = version, .text = std::make_shared<const std::string>(make())};
  }
  return kept.text;
}

std::shared_ptr<const std::string> JobTexts::job_json(std::uint64_t version) {
  return keep(job_, version, [this] { return state.json(name_, overview, log_bytes); });
}

std::shared_ptr<const std::string> JobTexts::index_json(std::uint64_t version) {
  return keep(index_, version, [this] { return charts.index_json(name_); });
}

std::shared_ptr<const std::string> JobTexts::chart_json(const std::string& name, const ChartRange& range,
                                                        std::uint64_t version) {
  const bool is_whole = std::isinf(range.from) && std::isinf(range.to);
  if (!is_whole) return std::make_shared<const std::string>(charts.chart_json(name, range));
  if (kept_charts_.size() > kMostKeptCharts) kept_charts_.clear();
  return keep(kept_charts_[name], version, [&] { return charts.chart_json(name, range); });
}

}  // namespace gyre::page::internal
