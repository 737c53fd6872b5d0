#pragma once

#include <string>
#include <string_view>

#include "gyre/base/file.h"
#include "gyre/launch/internal/line_splitter.h"

namespace gyre::launch {

/// Which ranks have ended with exit code 0, in a file in memory, for those that would else wait for them to join: a
/// line `rank R (host H, pid P) ended with exit code 0` each. Not thread-safe.
class EndedRanks {
 public:
  static constexpr std::size_t kLongestLineBytes = 512;

  /// Error(kResourceExhausted | kIo) when there is no descriptor left.
  EndedRanks();

  /// What the ranks inherit; they can read it and not write there.
  int descriptor() const { return for_ranks_.get(); }

  /// A rank of ours. Returns the line, without its end.
  std::string note(int rank, int process);

  /// What launchers of other hosts have noted, in pieces of any length. What is no such line is passed over.
  void hear(std::string_view text);

 private:
  void write(const std::string& line);

  UniqueFd file_;
  UniqueFd for_ranks_;
  LineSplitter heard_{kLongestLineBytes};
};

}  // namespace gyre::launch
