#include "gyre/launch/internal/line_splitter.h"

#include <algorithm>

namespace gyre::launch {

namespace {

/// So that a cut does not split a UTF-8 character: where the last character starts, if it has more than one byte.
std::size_t size_without_last_character_start(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back < text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0xC0) return text.size() - back;
    if ((byte & 0x80) == 0) break;
  }
  return text.size();
}

}  // namespace

void LineSplitter::add(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    // A '\r' was last: only now is it known whether it belongs to a "\r\n".
    if (!rest_.empty() && rest_.back() == '\r' && bytes.front() != '\n') {
      sink(std::string_view(rest_).substr(0, rest_.size() - 1), LineEnd::kCarriageReturn);
      rest_.clear();
      after_return_ = true;
    }
    const std::size_t stop = bytes.find_first_of("\r\n");
    const bool newline = stop != std::string_view::npos && bytes[stop] == '\n';
    // The '\r' stays with the text until the next byte is seen.
    const std::size_t taken = stop == std::string_view::npos ? bytes.size() : stop + (newline ? 0 : 1);
    while (rest_.size() + taken > limit_ && rest_.size() >= limit_) cut_long_line(sink);
    const std::size_t fits = std::min(taken, limit_ - rest_.size());
    rest_.append(bytes.substr(0, fits));
    bytes.remove_prefix(fits);
    if (fits < taken || !newline) continue;
    sink(rest_, LineEnd::kNewline);
    rest_.clear();
    after_return_ = false;
    bytes.remove_prefix(1);
  }
}

void LineSplitter::cut_long_line(const Sink& sink) {
  const std::size_t cut = size_without_last_character_start(rest_);
  sink(std::string_view(rest_).substr(0, cut), LineEnd::kCut);
  rest_.erase(0, cut);
}

void LineSplitter::cut(const Sink& sink) {
  if (!rest_.empty()) sink(rest_, LineEnd::kCut);
  rest_.clear();
  after_return_ = false;
}

void LineSplitter::finish(const Sink& sink) {
  if (!rest_.empty()) sink(rest_, LineEnd::kEndOfStream);
  rest_.clear();
  after_return_ = false;
}

}  // namespace gyre::launch
