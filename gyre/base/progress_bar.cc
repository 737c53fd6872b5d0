#include "gyre/base/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/parse.h"

namespace gyre {
namespace {

constexpr std::size_t kBarCharacters = 24;
constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

ProgressOptions progress_options_from_environment(int fd) {
  ProgressOptions options;
  options.fd = fd;
  const std::string term = environment_variable("TERM").value_or("");
  options.terminal = ::isatty(fd) == 1 && term != "dumb";
  options.colour = options.terminal && !environment_variable("NO_COLOR").has_value();
  struct winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.width = size.ws_col;
  return options;
}

ProgressBar::ProgressBar(std::string title, std::uint64_t total, const ProgressOptions& options)
    : title_(std::move(title)), total_(total), options_(options), last_(SteadyClock::now()) {
  GYRE_CHECK(total_ >= 1U);
}

std::string ProgressBar::line(std::string_view title, std::uint64_t done, std::uint64_t total, std::string_view note,
                              const ProgressOptions& options) {
  done = std::min(done, total);
  const std::string count = fmt::format("{}/{}", done, total);
  if (!options.terminal) return fmt::format("{} {} ({} %) {}", title, count, done * 100 / total, note);
  const auto filled = static_cast<std::size_t>(done * kBarCharacters / total);
  const std::string bar = std::string(filled, '#') + std::string(kBarCharacters - filled, '-');
  std::string text = fmt::format("{} [{}] {} {}", title, bar, count, note);
  // One column is left free: a full line would wrap, and then could not be redrawn in place.
  const auto most = static_cast<std::size_t>(std::max(options.width - 1, 1));
  if (text.size() > most) text.resize(most);
  const std::size_t start = title.size() + 2;
  if (options.colour && filled > 0 && start + filled <= text.size()) {
    text.insert(start + filled, kPlain);
    text.insert(start, kGreen);
  }
  return text;
}

void ProgressBar::update(std::uint64_t done, std::string_view note) {
  const auto now = SteadyClock::now();
  if (now - last_ < (options_.terminal ? options_.redraw : options_.repeat)) return;
  last_ = now;
  const std::string text = line(title_, done, total_, note, options_);
  draw(options_.terminal ? fmt::format("{}{}", kClearLine, text) : text + "\n");
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_ && options_.terminal) draw(kClearLine);
  drawn_ = false;
}

void ProgressBar::draw(std::string_view text) const {
  // One write, so that lines of several processes do not mix. Progress is worth no failure.
  const ssize_t ignored = ::write(options_.fd, text.data(), text.size());
  static_cast<void>(ignored);
}

}  // namespace gyre
