#include "gyre/cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace gyre::cli {

namespace {

struct Distance {
  std::size_t whole;      ///< To the candidate.
  std::size_t beginning;  ///< To what it begins with, at best.
};

/// Optimal string alignment: Levenshtein's distance with swaps of neighbours.
Distance edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  const std::vector<std::size_t>& last = distance[a.size()];
  return {last[b.size()], *std::min_element(last.begin(), last.end())};
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongestWord = 64;
  constexpr std::size_t kShortestBeginning = 3;
  const std::string_view letters = without_dashes(word);
  if (letters.empty() || letters.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> best;
  std::optional<std::string> begins_alike;
  // A change of every letter is no likeness.
  std::size_t best_distance = std::min(std::max<std::size_t>(1, letters.size() / 3) + 1, letters.size());
  std::size_t best_beginning = letters.size() / 3 + 1;
  for (const std::string& candidate : known) {
    const Distance distance = edit_distance(letters, without_dashes(candidate));
    if (distance.whole < best_distance) {
      best = candidate;
      best_distance = distance.whole;
    }
    if (letters.size() >= kShortestBeginning && distance.beginning < best_beginning) {
      begins_alike = candidate;
      best_beginning = distance.beginning;
    }
  }
  return best ? best : begins_alike;
}

std::string no_such_option(std::string_view option, const std::vector<std::string>& known) {
  const auto meant = nearest(option, known);
  return fmt::format("unknown option {}{}", option, meant ? fmt::format("; did you mean {}?", *meant) : "");
}

}  // namespace gyre::cli
