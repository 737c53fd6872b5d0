#include "gyre/params/internal/board.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::params::internal {

std::optional<Board::Sum> Board::give(int worker, std::vector<double> values) {
  const MutexLock lock(mutex_);
  given_.at(static_cast<std::size_t>(worker)) = std::move(values);
  return sum_of({ledger_.hand_in(worker, 0)});
}

std::optional<Board::Sum> Board::leave(int worker) {
  const MutexLock lock(mutex_);
  return sum_of(ledger_.leave(worker));
}

std::optional<Board::Sum> Board::lose(int worker) {
  const MutexLock lock(mutex_);
  return sum_of(ledger_.lose(worker));
}

std::optional<Board::Sum> Board::sum_of(const std::vector<Ledger::Decision>& decisions) const {
  if (decisions.empty() || decisions.front().contributors.empty()) return std::nullopt;
  const std::vector<int>& contributors = decisions.front().contributors;
  std::vector<double> total = given_[static_cast<std::size_t>(contributors.front())];
  for (const int worker : std::span(contributors).subspan(1)) {
    const std::vector<double>& values = given_[static_cast<std::size_t>(worker)];
    if (values.size() != total.size()) {
      throw Error(ErrorCode::kMismatch, fmt::format("worker {} adds up {} numbers, worker {} {}", contributors.front(),
                                                    total.size(), worker, values.size()));
    }
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  return Sum{contributors, std::make_shared<const std::vector<double>>(std::move(total))};
}

}  // namespace gyre::params::internal
