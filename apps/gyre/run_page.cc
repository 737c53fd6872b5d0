#include "apps/gyre/run_page.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/option_values.h"
#include "apps/gyre/page_files.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/rank_file.h"
#include "gyre/launch/watcher.h"
#include "gyre/metrics/series.h"
#include "gyre/page/run_page.h"

namespace gyre::app {

namespace {

constexpr int kMostCompared = 20;
constexpr int kBetweenLooksMs = 5;
/// A wait for viewers that is longer is explained.
constexpr std::chrono::milliseconds kUnnoticed{1'000};

/// Passes on to the page what the launcher says.
class Watcher final : public launch::JobWatcher {
 public:
  explicit Watcher(page::RunPage& page) : page_(page) {}

  void preparing(const std::string& text, bool is_done) override {
    page_.tell({.kind = page::News::Kind::kPreparing, .code = is_done ? 1 : 0, .text = text});
  }
  void started(int rank, pid_t process, const std::string& role, const std::string& host) override {
    page_.tell({.kind = page::News::Kind::kStarted, .rank = rank, .process = process, .text = role, .host = host});
  }
  void ended(const launch::ExitRecord& record) override {
    page_.tell({.kind = page::News::Kind::kEnded,
                .rank = record.rank,
                .process = record.process,
                .code = record.status.code,
                .signal = record.status.signal,
                .asked = record.asked_to_end});
  }
  void lost(const launch::ExitRecord& record) override {
    page_.tell({.kind = page::News::Kind::kLost, .rank = record.rank});
  }
  void failed(int rank, const std::string& report) override {
    page_.tell({.kind = page::News::Kind::kFailed, .rank = rank, .text = report});
  }
  void stopping(int signal) override { page_.tell({.kind = page::News::Kind::kStopping, .signal = signal}); }
  void restarting(int number) override { page_.tell({.kind = page::News::Kind::kRestarting, .code = number}); }

 private:
  page::RunPage& page_;
};

std::filesystem::path make_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "gyre-page-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw system_error("cannot make a folder for the page: " + pattern, errno);
  return pattern;
}

/// A signal ends it, but not the job, which has ended.
void wait_for_viewers(page::RunPage& page) {
  EndSignals signals;
  page.finish();
  const Deadline unnoticed = Deadline::after(kUnnoticed);
  for (bool is_said = false; !page.has_ended();) {
    if (signals.wait(kBetweenLooksMs)) return page.give_up();
    if (is_said || !unnoticed.passed()) continue;
    fmt::print(
        stderr,
        "gyre run: the job has ended; its page stays until the browser has fetched the end (Ctrl-C ends it now)\n");
    is_said = true;
  }
}

std::string name_of(const launch::LaunchOptions& options) {
  std::string name = std::filesystem::path(options.command.front()).filename().string();
  for (std::size_t i = 1; i < options.command.size(); ++i) name += " " + options.command[i];
  return name;
}

}  // namespace

void RunPage::add_options(CLI::App& verb) {
  verb.add_flag(
      "--page", wanted_,
      "Serve a page of the job, of all its hosts with -H, to a browser of this machine while it runs, by a link that "
      "is printed");
  verb.add_option("--page-port", port_, "Serve it at this port; default: a free one")->type_name("PORT");
  verb.add_option("--compare", compared_, "Show it with the charts of an earlier run (--metrics); repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

bool RunPage::is_wanted() const {
  if (!wanted_ && (!port_.empty() || !compared_.empty())) {
    throw UsageError(fmt::format("{} is for --page", port_.empty() ? "--compare" : "--page-port"));
  }
  return wanted_;
}

int RunPage::around(launch::LaunchOptions& options, std::optional<std::filesystem::path>* log_copies,
                    const std::function<int()>& job) const {
  const bool has_copies = log_copies != nullptr;
  page::RunPageOptions page_options;
  page_options.name = name_of(options);
  if (!port_.empty()) page_options.port = static_cast<int>(parse_integer(port_, "--page-port", 1, 65'535));
  if (compared_.size() > kMostCompared) throw UsageError(fmt::format("--compare: {} runs at most", kMostCompared));
  for (const std::string& file : compared_) page_options.others.emplace_back(file, metrics::load_run(file));
  if (!options.metrics || !options.log_dir || has_copies) page_options.remove_at_end = make_folder();
  if (!options.metrics) options.metrics = *page_options.remove_at_end / "metrics";
  if (has_copies) {
    *log_copies = *page_options.remove_at_end;
  } else if (!options.log_dir) {
    options.log_dir = *page_options.remove_at_end;
    options.names_logs = false;
  }
  page_options.metrics = *options.metrics;
  page_options.logs = std::filesystem::absolute(has_copies ? **log_copies : *options.log_dir);
  if (options.timeline && has_rank_mark(*options.timeline)) page_options.timeline = *options.timeline;
  page_options.files = page_files();
  page::RunPage page(page_options);
  page_options.others.clear();
  fmt::print(stderr, "gyre run: the page of this job, for one browser: {}\n", page.link());
  Watcher watcher(page);
  options.watcher = &watcher;
  int code = 0;
  try {
    code = job();
  } catch (const Error& error) {
    page.tell({.kind = page::News::Kind::kFailed, .text = error.what()});
    page.tell({.kind = page::News::Kind::kFinished, .code = 1});
    throw;
  }
  options.watcher = nullptr;
  page.tell({.kind = page::News::Kind::kFinished, .code = code});
  wait_for_viewers(page);
  return code;
}

}  // namespace gyre::app
