#include "gyre/params/internal/exchange_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::params::internal {
namespace {

/// "conv1.weight", "fc.weight[0:1048576]", "conv2.weight … fc.bias".
std::string name_of(const std::vector<Range>& ranges, std::span<const std::string> names,
                    std::span<const int> pieces_of_tensor) {
  const Range& first = ranges.front();
  if (ranges.size() > 1) return fmt::format("{} … {}", names[first.tensor], names[ranges.back().tensor]);
  if (pieces_of_tensor[first.tensor] == 1) return names[first.tensor];
  return fmt::format("{}[{}:{}]", names[first.tensor], first.first, first.first + first.count);
}

}  // namespace

ExchangeTrace::ExchangeTrace(std::shared_ptr<Timeline> timeline, std::span<const Block> blocks,
                             std::span<const std::string> names)
    : timeline_(std::move(timeline)) {
  std::vector<int> pieces_of_tensor(names.size(), 0);
  for (const Block& block : blocks) {
    for (const Range& range : block.ranges) {
      GYRE_CHECK(range.tensor < names.size());
      ++pieces_of_tensor[range.tensor];
    }
  }
  for (const Block& block : blocks) {
    rows_.push_back(fmt::format("server {}: {}", block.server, name_of(block.ranges, names, pieces_of_tensor)));
  }
}

void ExchangeTrace::add_call(std::string_view phase, Time began, std::string detail) {
  timeline_->add("parameter servers",
                 {.name = phase, .began = began, .lasted = SteadyClock::now() - began, .detail = std::move(detail)});
}

void ExchangeTrace::add_block(std::size_t block, const BlockTimes& times) {
  const std::string& row = rows_[block];
  // An answer may be noted a moment before the word that the server has taken what it answers.
  const Time taken = std::min(times.taken, times.answered);
  timeline_->add(row, {.name = "PUSH_PULL", .began = times.began, .lasted = times.answered - times.began});
  timeline_->add(row, {.name = "PUSH", .began = times.began, .lasted = taken - times.began});
  timeline_->add(row, {.name = "PULL", .began = taken, .lasted = times.answered - taken});
}

}  // namespace gyre::params::internal
