#include "gyre/params/internal/board.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::params::internal {

std::string_view place_of(Meeting meeting) {
  static constexpr std::array<std::string_view, kMeetings> kPlaces = {"adding up metrics", "at settle()",
                                                                      "about to take its first step", "broadcasting"};
  return kPlaces.at(static_cast<std::size_t>(meeting));
}

void Board::require_equal_steps() {
  const MutexLock lock(mutex_);
  equal_steps_ = true;
}

bool Board::requires_equal_steps() {
  const MutexLock lock(mutex_);
  return equal_steps_;
}

void Board::begin_step(int worker, std::uint64_t step) {
  const MutexLock lock(mutex_);
  steps_.at(static_cast<std::size_t>(worker)) = step;
  for (std::size_t other = 0; other < given_.size(); ++other) {
    if (given_[other]) check_steps(static_cast<int>(other), worker);
  }
}

std::optional<Board::Sum> Board::give(int worker, Meeting meeting, std::vector<double> values) {
  const MutexLock lock(mutex_);
  const Ledger::Decision decision = ledger_.hand_in(worker, 0);
  given_[static_cast<std::size_t>(worker)] = {meeting, std::move(values)};
  for (std::size_t other = 0; other < given_.size(); ++other) {
    if (given_[other]) {
      check_agreement(static_cast<int>(other), worker);
    } else {
      check_steps(worker, static_cast<int>(other));
    }
  }
  return sum_of({decision});
}

std::optional<Board::Sum> Board::leave(int worker) {
  const MutexLock lock(mutex_);
  steps_.at(static_cast<std::size_t>(worker)) = 0;
  return sum_of(ledger_.leave(worker));
}

std::optional<Board::Sum> Board::lose(int worker) {
  const MutexLock lock(mutex_);
  steps_.at(static_cast<std::size_t>(worker)) = 0;
  given_.at(static_cast<std::size_t>(worker)).reset();
  return sum_of(ledger_.lose(worker));
}

void Board::check_agreement(int first, int other) const {
  const Given& one = *given_[static_cast<std::size_t>(first)];
  const Given& two = *given_[static_cast<std::size_t>(other)];
  if (one.meeting != two.meeting) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("worker {} is {}, worker {} is {}: all workers have to make these calls in the same order",
                            first, place_of(one.meeting), other, place_of(two.meeting)));
  }
  if (one.values.size() != two.values.size()) {
    throw Error(ErrorCode::kMismatch, fmt::format("worker {} adds up {} numbers, worker {} {}", first,
                                                  one.values.size(), other, two.values.size()));
  }
}

void Board::check_steps(int meeting, int stepping) const {
  const std::uint64_t taken = steps_[static_cast<std::size_t>(meeting)];
  const std::uint64_t step = steps_[static_cast<std::size_t>(stepping)];
  if (!equal_steps_ || step <= taken) return;
  throw Error(
      ErrorCode::kMismatch,
      fmt::format("worker {} is {} after {} steps, and worker {} takes step {}, which waits for all workers: with this "
                  "consistency they all have to take the same number of steps. Give them equally many batches, or "
                  "choose a consistency for which the numbers may differ: async, bounded, backup or local",
                  meeting, place_of(given_[static_cast<std::size_t>(meeting)]->meeting), taken, stepping, step));
}

std::optional<Board::Sum> Board::sum_of(const std::vector<Ledger::Decision>& decisions) {
  if (decisions.empty() || decisions.front().contributors.empty()) return std::nullopt;
  const std::vector<int>& contributors = decisions.front().contributors;
  std::vector<double> total;
  for (const int worker : contributors) {
    const Given given = *std::exchange(given_[static_cast<std::size_t>(worker)], std::nullopt);
    total.resize(given.values.size());
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += given.values[i];
  }
  return Sum{contributors, std::make_shared<const std::vector<double>>(std::move(total))};
}

}  // namespace gyre::params::internal
