#include "workloads/training/epoch_report.h"

#include <fmt/format.h>

namespace gyre::training {
namespace {

double in_seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void EpochReport::begin(double samples_before) {
  start_ = SteadyClock::now();
  samples_before_ = samples_before;
  samples_here_ = steps_ = 0;
}

void EpochReport::note_step(double learning_rate, std::uint64_t samples) {
  last_rate_ = learning_rate;
  samples_here_ += samples;
  ++steps_;
}

void EpochReport::end() { seconds_ = in_seconds(SteadyClock::now() - start_); }

std::string EpochReport::describe_progress(const MetricSums& trained) const {
  const double rate = static_cast<double>(samples_here_) / in_seconds(SteadyClock::now() - start_);
  return fmt::format("{}  {:.{}f} {}/s", describe(metrics_, "", trained), rate, rate < 10 ? 1 : 0, samples_);
}

std::string EpochReport::line(const MetricSums& trained, const MetricSums& tested,
                              std::chrono::nanoseconds waited) const {
  const std::string brought =
      fmt::format("{}  {}", describe(metrics_, "", trained), describe(metrics_, "test ", tested));
  if (steps_ == 0) return brought + "  evaluated after the resume";
  return fmt::format("{}  {:.1f} {}/s  {:.2f} steps/s  {:.1f} s, {:.1f} of them waiting for data", brought,
                     samples_per_second(trained), samples_, steps_per_second(), seconds_, in_seconds(waited));
}

std::vector<std::pair<std::string, double>> EpochReport::curves(const MetricSums& trained, const MetricSums& tested,
                                                                std::chrono::nanoseconds waited) const {
  std::vector<std::pair<std::string, double>> curves;
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    curves.emplace_back(fmt::format("train/{}", metrics_[i].name), trained.means()[i]);
    curves.emplace_back(fmt::format("test/{}", metrics_[i].name), tested.means()[i]);
  }
  if (steps_ == 0) return curves;
  curves.emplace_back(fmt::format("train/{}_per_second", samples_), samples_per_second(trained));
  curves.emplace_back("train/steps_per_second", steps_per_second());
  curves.emplace_back("train/learning_rate", last_rate_);
  curves.emplace_back("train/waited_for_data_seconds", in_seconds(waited));
  return curves;
}

}  // namespace gyre::training
