#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gyre::launch {

/// What ended a piece of a stream.
enum class LineEnd {
  kNewline,         ///< '\n', which is not part of the text ("\r\n" leaves its '\r' there).
  kCarriageReturn,  ///< '\r' with more text after it: on a terminal, what follows overwrites it.
  kCut,             ///< Nothing; the line is longer than the limit and goes on in the next piece.
  kEndOfStream,     ///< The stream ended without a newline.
};

/// Cuts a stream of bytes into lines. Holds at most one unfinished line of the limit's length. Joining all pieces, each
/// with what ended it, gives the stream's bytes again. Not thread-safe.
class LineSplitter {
 public:
  static constexpr std::size_t kLongestLineBytes = std::size_t{64} << 10;

  using Sink = std::function<void(std::string_view text, LineEnd end)>;

  explicit LineSplitter(std::size_t longest_line_bytes = kLongestLineBytes) : limit_(longest_line_bytes) {}

  /// Gives every piece that is complete after `bytes` to `sink`; the text is valid during the call only.
  void add(std::string_view bytes, const Sink& sink);

  /// Gives the rest, if there is one, as kEndOfStream.
  void finish(const Sink& sink);

  /// Gives the unfinished line, if there is one, as kCut: what it waits for may never come, as after a prompt.
  void cut(const Sink& sink);

  std::string_view unfinished() const { return rest_; }

  /// The text of the unfinished line when it overwrites an earlier one (a progress bar); empty otherwise.
  std::string_view progress() const { return after_return_ ? std::string_view(rest_) : std::string_view(); }

 private:
  void cut_long_line(const Sink& sink);

  std::size_t limit_;
  std::string rest_;
  bool after_return_ = false;
};

}  // namespace gyre::launch
