#include "workloads/training/survivors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gyre/base/check.h"

namespace gyre::training {

Survivors::Survivors(int ranks) : here_(static_cast<std::size_t>(ranks), true) {}

int Survivors::count() const { return static_cast<int>(std::ranges::count(here_, true)); }

int Survivors::place_of(int rank) const {
  GYRE_CHECK(has(rank));
  return static_cast<int>(std::count(here_.begin(), here_.begin() + rank, true));
}

std::vector<double> Survivors::presence(int rank) const {
  std::vector<double> values(here_.size(), 0.0);
  values.at(static_cast<std::size_t>(rank)) = 1;
  return values;
}

std::vector<int> Survivors::note(std::span<const double> present) {
  GYRE_CHECK(present.size() == here_.size());
  std::vector<int> died;
  for (std::size_t rank = 0; rank < here_.size(); ++rank) {
    if (!here_[rank] || present[rank] > 0) continue;
    here_[rank] = false;
    died.push_back(static_cast<int>(rank));
  }
  return died;
}

std::string describe_deaths(const std::vector<int>& ranks) {
  GYRE_CHECK(!ranks.empty());
  return ranks.size() == 1 ? fmt::format("worker {} has died", ranks.front())
                           : fmt::format("workers {} have died", fmt::join(ranks, ", "));
}

}  // namespace gyre::training
