#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::cli {

struct LiveOptions {
  int fd = 2;           ///< Of the terminal; not owned.
  bool draws = false;   ///< There is a terminal that can move its cursor; else nothing but plain text is written.
  bool colour = false;  ///< Only where it draws.
};

/// Draws where stdout and stderr are one terminal and TERM is neither empty nor "dumb"; in colour unless NO_COLOR is
/// set.
LiveOptions live_options_from_environment();

enum class Tone { kPlain, kDim, kGood, kBad, kBusy };

struct BlockLine {
  std::string text{};  ///< Shown printable().
  Tone tone = Tone::kPlain;
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

/// As many columns of `text`, which is printable(), as fit; East Asian characters and emoji are two wide.
std::string cut_to_columns(std::string_view text, int columns);
int columns_of(std::string_view text);

/// Text that stays, in the order in which it comes, and below it a few lines that are drawn again in place. The cursor
/// always stands at the beginning of the line below the block, and no mode of the terminal is changed: whenever the
/// program is killed, the prompt comes on a line of its own. Not thread-safe.
class LiveBlock {
 public:
  explicit LiveBlock(const LiveOptions& options) : options_(options) {}
  /// Takes the block away, and writes lines that have not ended.
  ~LiveBlock();
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  bool draws() const { return options_.draws; }
  /// Of its terminal, at present.
  TerminalSize size() const;

  /// Text for stdout or stderr, any bytes. Where it draws, lines stay once they have ended; the end of one that has not
  /// (a progress bar) is the last line of the block.
  void write(std::FILE* to, std::string_view text);

  /// What the block shows from now on. Cut to the terminal's size; drawn only where it differs.
  void show(std::vector<BlockLine> lines);

  /// Takes the block away until the next show(), and writes lines that have not ended.
  void clear();

 private:
  std::string erased(const TerminalSize& size);
  std::string drawn(const TerminalSize& size);
  void put(std::string_view text) const;

  LiveOptions options_;
  std::vector<BlockLine> lines_;
  std::vector<int> drawn_columns_;                // Of the lines on the screen.
  std::map<std::FILE*, std::string> unfinished_;  // The beginning of a line.
  std::string on_screen_;
};

}  // namespace gyre::cli
