#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "gyre/base/clock.h"

namespace gyre {

struct ProgressOptions {
  int fd = 1;                              ///< Where it is drawn: standard output, not owned.
  bool terminal = false;                   ///< Redraw one line in place; else a plain line now and then.
  bool colour = false;                     ///< Only on a terminal.
  int width = 80;                          ///< Of the terminal, in characters.
  std::chrono::milliseconds redraw{100};   ///< On a terminal: between two drawings.
  std::chrono::milliseconds repeat{5000};  ///< Elsewhere: between two lines.
};

/// What fits `fd`: in place on a terminal, in colour unless NO_COLOR is set or TERM is dumb.
ProgressOptions progress_options_from_environment(int fd);

/// Shows how far a known amount of work has come. Draws in update() only (no thread, no timer); a write that fails is
/// ignored. Not thread-safe.
class ProgressBar {
 public:
  /// `title` stands in front: "epoch 3/10". `total` is at least 1.
  ProgressBar(std::string title, std::uint64_t total, const ProgressOptions& options);

  /// `done` of `total`; `note` stands behind: "loss 0.31, 812 images/s".
  void update(std::uint64_t done, std::string_view note);

  /// Takes the bar away, so that whatever is printed next stands in its place.
  void clear();

  /// What update() draws: "title [####----] 12/40 note", cut to the width. Pure; for tests.
  static std::string line(std::string_view title, std::uint64_t done, std::uint64_t total, std::string_view note,
                          const ProgressOptions& options);

 private:
  void draw(std::string_view text) const;

  std::string title_;
  std::uint64_t total_;
  ProgressOptions options_;
  SteadyClock::time_point last_;
  bool drawn_ = false;
};

}  // namespace gyre
