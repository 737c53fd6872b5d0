#include "gyre/metrics/job_file.h"

#include <fmt/format.h>

#include <charconv>

#include "gyre/base/rank_file.h"

namespace gyre::metrics {
namespace {

constexpr std::string_view kBeginning = "gyre-";
constexpr std::string_view kEnding = ".metrics";
constexpr std::string_view kTimeline = "-timeline-";
constexpr std::string_view kTimelineEnding = ".json";

/// The number that `text` begins with, which is taken off; nothing without one.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view beginning) {
  if (!text.starts_with(beginning)) return false;
  text.remove_prefix(beginning.size());
  return true;
}

}  // namespace

std::string name_of(const JobFile& file) {
  return fmt::format("{}{}-{}{}", kBeginning, file.attempt, file.node, kEnding);
}

std::optional<JobFile> job_file_named(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, kBeginning)) return std::nullopt;
  const auto attempt = take_number<int>(rest);
  if (!attempt || !take(rest, "-")) return std::nullopt;
  const auto node = take_number<int>(rest);
  if (!node) return std::nullopt;
  const JobFile file{.attempt = *attempt, .node = *node};
  return name_of(file) == name ? std::optional(file) : std::nullopt;  // "gyre-01-0.metrics" is somebody else's.
}

std::string name_of_timelines(int attempt) {
  return fmt::format("{}{}{}{}{}", kBeginning, attempt, kTimeline, kRankMark, kTimelineEnding);
}

std::optional<JobTimelineFile> job_timeline_named(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, kBeginning)) return std::nullopt;
  const auto attempt = take_number<int>(rest);
  if (!attempt || !take(rest, kTimeline)) return std::nullopt;
  const auto rank = take_number<int>(rest);
  if (!rank) return std::nullopt;
  const JobTimelineFile file{.attempt = *attempt, .rank = *rank};
  return file_of_rank(name_of_timelines(file.attempt), file.rank) == name ? std::optional(file) : std::nullopt;
}

std::string text_of(const JobFileOrder& order) { return fmt::format("{}:{}", order.most_bytes, order.path.string()); }

std::optional<JobFileOrder> parse_job_file_order(std::string_view text) {
  const auto bytes = take_number<std::int64_t>(text);
  if (!bytes || !take(text, ":") || !text.starts_with('/')) return std::nullopt;
  return JobFileOrder{.path = text, .most_bytes = static_cast<std::uint64_t>(*bytes)};
}

}  // namespace gyre::metrics
