#include "gyre/jobs/client/escape_keys.h"

#include <utility>

namespace gyre::jobs::client {

std::string EscapeKeys::pass(std::string_view typed) {
  std::string passed;
  for (const char key : typed) {
    if (leaves_) break;
    if (std::exchange(waits_, false)) {
      leaves_ = key == '.';
      if (leaves_) break;
      passed += escape_;
      line_begins_ = false;
      if (key == escape_) continue;
    } else if (line_begins_ && key == escape_) {
      waits_ = true;
      continue;
    }
    passed += key;
    line_begins_ = key == '\r' || key == '\n';
  }
  return passed;
}

std::string EscapeKeys::rest() { return std::exchange(waits_, false) ? std::string(1, escape_) : std::string(); }

}  // namespace gyre::jobs::client
