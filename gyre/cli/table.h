#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::cli {

/// `text` for a terminal: control characters, which could move its cursor or write its title, as "\x1b"; so are bytes
/// that are no UTF-8.
std::string printable(std::string_view text);

/// "12 B", "1.2 MB": powers of 1024.
std::string shown_bytes(std::uint64_t bytes);

/// "2m10s"
std::string shown_seconds(std::int64_t seconds);

/// Rows of text under their headings, in columns as wide as they must be. Cells are shown printable().
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}

  /// As many cells as there are headings; empty ones show as "-".
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// With the headings, a line for each row.
  std::string text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gyre::cli
