#include "gyre/launch/internal/tail_buffer.h"

#include <fmt/format.h>

namespace gyre::launch {

void TailBuffer::add(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (lines_.size() == kMostLines) lines_.pop_front();
  if (line.size() <= kLongestLineBytes) {
    lines_.emplace_back(line);
  } else {
    lines_.push_back(
        fmt::format("{} … ({} bytes more)", line.substr(0, kLongestLineBytes), line.size() - kLongestLineBytes));
  }
}

}  // namespace gyre::launch
