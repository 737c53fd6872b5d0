#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/internal/stall/rank_state.h"

namespace gyre::engine::internal {

/// Longest text about a rank's location that travels; what is longer is cut.
constexpr std::size_t kMostLocationBytes = 1000;

/// A rank has waited long for the end of a plan's step.
struct StalledStep {
  PlanStep step;
  std::string plan_name;
  std::chrono::milliseconds waited{0};

  friend bool operator==(const StalledStep&, const StalledStep&) = default;
};

/// What a rank answers when it is asked where it is.
struct StallAnswer {
  std::uint32_t question = 0;
  std::string program;                ///< EngineOptions::location; empty: it does not know.
  std::vector<PlanStep> waits_for{};  ///< The steps of plans whose end it waits for.
  RankState state{};

  friend bool operator==(const StallAnswer&, const StallAnswer&) = default;
};

/// A question to all ranks, where they are, and their answers, out of which the report of a stall is made. A rank whose
/// interpreter is busy cannot answer, so nobody waits long for it. Pure, no I/O, one thread.
class StallInquiry {
 public:
  /// How long the report waits for the answers.
  static constexpr std::chrono::milliseconds kPatience{2000};

  explicit StallInquiry(int size) : answers_(static_cast<std::size_t>(size)) {}

  /// A new question to these ranks; returns its number, from 1.
  std::uint32_t ask(std::vector<int> ranks, SteadyClock::time_point now);
  /// Answers to earlier questions are dropped.
  void answer(int rank, StallAnswer answer);
  void close() { open_ = false; }

  bool is_open() const { return open_; }
  /// All have answered, or the patience is over.
  bool is_over(SteadyClock::time_point now) const;
  SteadyClock::time_point deadline() const { return asked_ + kPatience; }

  /// "at train.py:4 …" with a word in front, or what is known instead; empty: the rank answered that it does not know.
  std::string place_of(int rank) const;
  /// The same of the first of these ranks that knows.
  std::string first_place_of(const std::vector<int>& ranks) const;
  /// By rank; nothing of those that have not answered.
  std::vector<std::optional<RankState>> states() const;
  /// The ranks that wait for the end of this step.
  std::vector<int> waiting_for(const PlanStep& step) const;

 private:
  bool open_ = false;
  std::uint32_t question_ = 0;
  SteadyClock::time_point asked_{};
  std::vector<int> asked_ranks_;
  std::vector<std::optional<StallAnswer>> answers_;  // By rank.
};

}  // namespace gyre::engine::internal
