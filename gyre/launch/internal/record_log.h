#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gyre::launch {

/// Numbered records, from 1, each a line of JSON; in bounded memory, so the oldest go. Not thread-safe.
class RecordLog {
 public:
  explicit RecordLog(std::size_t keep_bytes) : keep_bytes_(keep_bytes) {}

  /// Adds `record`, an object, with its number as "sequence".
  void add(nlohmann::json record);

  /// The number of the oldest record that is still here; one more than last() when there is none.
  std::uint64_t first() const { return first_; }
  /// The number of the newest record; 0 before the first one.
  std::uint64_t last() const { return first_ + lines_.size() - 1; }
  /// The line, with its newline. Precondition: first() <= sequence <= last().
  const std::string& line(std::uint64_t sequence) const { return lines_.at(sequence - first_); }

 private:
  std::size_t keep_bytes_;
  std::size_t bytes_ = 0;
  std::uint64_t first_ = 1;
  std::deque<std::string> lines_;
};

/// Puts bytes into a record: as "text" where they are UTF-8, else as "base64".
void put_bytes(nlohmann::json& record, std::string_view bytes);

}  // namespace gyre::launch
