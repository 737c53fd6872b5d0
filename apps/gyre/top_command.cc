#include "apps/gyre/top_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/cli/live_block.h"
#include "gyre/cli/table.h"
#include "gyre/metrics/overview.h"

namespace gyre::app {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1};
constexpr std::size_t kMostValues = 8;

std::string note_of(const metrics::Overview& run, std::string_view key) {
  const auto found = run.notes().find(key);
  return found == run.notes().end() ? std::string() : found->second;
}

template <typename Number>
std::string shown(const std::optional<Number>& number, std::string_view format) {
  return number ? fmt::format(fmt::runtime(format), *number) : std::string();
}

/// A run, and whether anything more will come of it.
struct Watched {
  metrics::Overview overview{};
  bool is_over = false;
};

/// Nothing is written after this was false before the last look: whoever writes the file was killed.
void look(metrics::FileReader& reader, Watched& run) {
  const bool is_written = reader.is_written();
  reader.read();
  run.is_over = !is_written || run.overview.notes().contains("exit_code");
}

std::string end_of(const Watched& run) {
  const auto code = run.overview.notes().find("exit_code");
  return metrics::end_of(code == run.overview.notes().end() ? nullptr : &code->second, !run.is_over);
}

std::string title_of(const Watched& watched) {
  const metrics::Overview& run = watched.overview;
  const std::string end = end_of(watched);
  return fmt::format("{}: {} ranks, started {}, {}", note_of(run, "command"), note_of(run, "ranks"),
                     note_of(run, "started"), end);
}

std::string ranks_of(const Watched& run) {
  cli::Table table({"RANK", "STEP", "STEPS/S", "WAITS", "CORES", "MEMORY", "LAST VALUE"});
  const std::int64_t now_us = wall_clock_us();
  for (const metrics::RankNow& now : run.overview.ranks()) {
    const std::int64_t ago = std::max<std::int64_t>(0, (now_us - now.time_us) / 1'000'000);
    table.add({std::to_string(now.rank), shown(now.step, "{}"), shown(now.steps_per_second, "{:.3g}"),
               now.waiting ? fmt::format("{:.0f} %", 100 * *now.waiting) : std::string(),
               shown(now.cpu_cores, "{:.2f}"),
               now.memory_bytes ? cli::shown_bytes(static_cast<std::uint64_t>(*now.memory_bytes)) : std::string(),
               run.is_over || now.time_us == 0 ? std::string() : cli::shown_seconds(ago) + " ago"});
  }
  return table.empty() ? "no values yet\n" : table.text();
}

std::string values_of(const metrics::Overview& run) {
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, point] : run.logged()) {
    if (count++ == kMostValues) return text + fmt::format("and {} more names\n", run.logged().size() - kMostValues);
    text += fmt::format("{} {:.6g} at step {}\n", cli::printable(name), point.value, point.step);
  }
  return text;
}

std::string screen_of(const Watched& run) {
  return cli::printable(title_of(run)) + "\n" + values_of(run.overview) + ranks_of(run);
}

std::vector<cli::BlockLine> lines_of(const std::string& text) {
  std::vector<cli::BlockLine> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back({.text = line});
  return lines;
}

}  // namespace

TopCommand::TopCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("top", "Watch the ranks of a run: steps, waits, processors, memory");
  verb->add_option("FILE", file_, "What `gyre run --metrics` writes")->required();
  verb->add_flag("--once", once_, "Print it once, as without a terminal");
  verb->footer(
      "\nThe slowest ranks come first. WAITS is the share of the last ten seconds that the training waited for the "
      "exchange;\nLAST VALUE, when the program logged one or its optimizer ended a step.\nIt ends with the run, or "
      "with Ctrl-C.\n\nExamples:\n  gyre run -n 4 --metrics run.metrics -- python "
      "train.py\n  gyre top run.metrics");
}

int TopCommand::run() const {
  Watched run;
  metrics::FileReader reader(file_, run.overview);
  const cli::LiveOptions options = cli::live_options_from_environment();
  {
    cli::LiveBlock block(options);
    for (look(reader, run); options.draws && !once_ && !run.is_over; look(reader, run)) {
      block.show(lines_of(screen_of(run)));
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  write_all(STDOUT_FILENO, as_bytes(screen_of(run)), "cannot write to standard output");
  return 0;
}

}  // namespace gyre::app
