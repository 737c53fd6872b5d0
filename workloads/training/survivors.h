#pragma once

#include <span>
#include <string>
#include <vector>

namespace gyre::training {

/// Which ranks of a job are left: with parameter servers it can go on without some. The same on all of them, because
/// they learn it from a sum over them. A value.
class Survivors {
 public:
  explicit Survivors(int ranks);

  int count() const;
  /// Whether `rank` has not died.
  bool has(int rank) const { return here_.at(static_cast<std::size_t>(rank)); }
  /// Which of the survivors `rank` is, in the order of their ranks. Precondition: has(rank).
  int place_of(int rank) const;

  /// What `rank` gives to the sum: 1 in its place, 0 elsewhere.
  std::vector<double> presence(int rank) const;
  /// `present`: the sum. Returns the ranks that have died since the last one, ascending.
  std::vector<int> note(std::span<const double> present);

 private:
  std::vector<bool> here_;  // By rank.
};

/// "worker 2 has died", "workers 1, 2 have died". Precondition: `ranks` is not empty.
std::string describe_deaths(const std::vector<int>& ranks);

}  // namespace gyre::training
