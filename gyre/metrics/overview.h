#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/metrics/file.h"
#include "gyre/metrics/series.h"

namespace gyre::metrics {

/// What a rank does at present. Rates are those of the ten seconds before the latest sample of it, its launcher's
/// included: by the clock of its host.
struct RankNow {
  int rank = 0;
  std::int64_t time_us = 0;                ///< Of its program's latest value or its optimizers' step; 0: none yet.
  std::optional<std::int64_t> step;        ///< What its program has logged last; else finished steps of optimizers.
  std::optional<double> steps_per_second;  ///< Of `step`.
  std::optional<double> waiting;           ///< The share of the time that it waited for the exchange, 0 to 1.
  bool tells_waits = false;                ///< Has told how long it waited; `waiting` is of now, and may be unknown.
  std::optional<double> cpu_cores;
  std::optional<double> memory_bytes;
};

/// Follows a run for somebody who watches it, in memory that does not grow with its length. Not thread-safe.
class Overview : public FileVisitor {
 public:
  void sample(const Sample& sample) override;
  void note(std::string_view key, std::string_view value) override;
  /// A rank that starts again has done nothing yet.
  void event(std::string_view line) override;

  /// The slowest first: by step, and those with none before all others; then by rank.
  std::vector<RankNow> ranks() const;
  /// The latest value under each name that the program has logged, of the lowest rank that has it.
  const std::map<std::string, Point, std::less<>>& logged() const { return logged_; }
  /// Facts about the run, "exit_code" among them once it is over.
  const std::map<std::string, std::string, std::less<>>& notes() const { return notes_; }

 private:
  /// A number that grows: the last ten seconds of it.
  class Counter {
   public:
    void add(std::int64_t time_us, double value);
    /// Of two readings or more.
    std::int64_t usual_gap_us() const;
    /// Nothing has come for so long that what came before says nothing of now.
    bool is_silent(std::int64_t now_us) const;
    std::optional<double> per_second(std::int64_t now_us) const;
    std::optional<double> latest() const;

   private:
    struct Reading {
      std::int64_t time_us;
      double value;
    };
    std::deque<Reading> readings_;
  };

  struct Rank {
    void note_step(const Sample& sample);

    std::int64_t time_us = 0;
    std::int64_t value_us = 0;
    // Steps are those of the name that is logged most often, while it is: others may count epochs.
    std::map<std::string, std::uint64_t, std::less<>> logged;
    std::string steps_of;
    std::int64_t steps_at_us = 0;
    Counter logged_step;
    Counter optimizer_steps;
    Counter exposed_seconds;
    Counter waiting_seconds;
    std::optional<double> cpu_cores;
    std::optional<double> memory_bytes;
  };

  static RankNow now_of(int number, const Rank& rank);

  std::map<int, Rank> ranks_;
  std::map<std::string, Point, std::less<>> logged_;
  std::map<std::string, int, std::less<>> lowest_rank_;  // That has logged under the name.
  std::map<std::string, std::string, std::less<>> notes_;
};

}  // namespace gyre::metrics
