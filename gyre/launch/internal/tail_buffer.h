#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace gyre::launch {

/// The last lines of a rank, in bounded memory; for the report about its end.
class TailBuffer {
 public:
  static constexpr std::size_t kMostLines = 15;
  static constexpr std::size_t kLongestLineBytes = 4000;

  /// A longer line keeps its beginning and shows how much is left out.
  void add(std::string_view line);

  /// Oldest first.
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace gyre::launch
