#pragma once

#include <string>
#include <string_view>

namespace gyre::jobs::client {

/// The way out of a terminal whose other side answers nothing, as ssh has it: at the beginning of a line, the escape
/// character and '.' leave; that character twice is one of them; before anything else it is itself.
class EscapeKeys {
 public:
  explicit EscapeKeys(char escape) : escape_(escape) {}

  /// What is to be passed on of the keys that were typed. The escape character waits for the key behind it.
  std::string pass(std::string_view typed);
  /// What still waits, once nothing more is typed.
  std::string rest();
  /// The last key that pass() got has left; what it gets from then on is dropped.
  bool leaves() const { return leaves_; }

 private:
  const char escape_;
  bool line_begins_ = true;
  bool waits_ = false;  // The escape character has been typed.
  bool leaves_ = false;
};

}  // namespace gyre::jobs::client
