#include "apps/gyre/job_console.h"
#include "apps/gyre/program_start.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "apps/gyre/job_place.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/client/code_archive.h"
#include "gyre/jobs/client/log_tail.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/resources/json.h"
#include "gyre/jobs/spec/write.h"
#include "gyre/net/http/error.h"

namespace gyre::app {

namespace {

using jobs::client::path_of;
using jobs::resources::JobName;

constexpr std::size_t kLongestName = 64;
/// For the order to stop a job, whose follower wants to go.
constexpr std::chrono::seconds kStopPatience{10};
constexpr int kSignalExitCode = 128;

/// The console goes, the job stays.
struct Left {};

/// What signals do to a job that is followed: asked for whenever its follower has a moment.
class Interrupts {
 public:
  Interrupts(EndSignals& signals, std::string verb, std::string shown, JobView& view, std::function<void()> stop)
      : signals_(signals), verb_(std::move(verb)), shown_(std::move(shown)), view_(view), stop_(std::move(stop)) {}

  /// Left where the job is to go on alone.
  void look() {
    if (!signals_.wait(0)) return;
    const int signal = signals_.received();
    if (signal == SIGHUP || stopped_with_) throw Left();
    const bool asks = signal == SIGINT && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
    if (asks && !is_to_stop()) return;
    view_.say(fmt::format("{}: stops {}; a second signal leaves it alone", verb_, shown_));
    stopped_with_ = signal;
    stop_();
  }

  /// The signal for which the job was stopped.
  std::optional<int> stopped_with() const { return stopped_with_; }

 private:
  /// False: it is to go on, and to be followed. Left where it is to go on alone.
  bool is_to_stop() {
    view_.pause();
    fmt::print(stderr, "\n{}: stop {} (s), leave it running (l), or go on (Enter)? ", verb_, shown_);
    std::fflush(stderr);
    while (true) {
      if (signals_.wait(0)) {  // While the question stands.
        if (signals_.received() == SIGHUP) throw Left();
        return true;
      }
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, kBetweenLooksMs) <= 0) continue;
      std::array<char, 256> line{};
      const ssize_t bytes = ::read(STDIN_FILENO, line.data(), line.size());
      if (bytes <= 0) throw Left();  // Nobody is there any more.
      if (line[0] == 'l' || line[0] == 'L') throw Left();
      return line[0] == 's' || line[0] == 'S';
    }
  }

  static constexpr int kBetweenLooksMs = 50;

  EndSignals& signals_;
  const std::string verb_;
  const std::string shown_;
  JobView& view_;
  const std::function<void()> stop_;
  std::optional<int> stopped_with_;
};

}  // namespace

std::string as_job_name(const std::string& text) {
  std::string name = text.substr(0, kLongestName);
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '-');
  return name;
}

int with_a_jobs_exit_code(const std::string& verb, const std::function<int()>& follow) {
  try {
    return follow();
  } catch (const Error& error) {
    const bool is_answer = dynamic_cast<const net::http::HttpError*>(&error) != nullptr;
    if (!is_answer && error.code() == ErrorCode::kInvalidArgument) throw;
    print_failure(verb, error.what());
    return jobs::resources::kNotTheJobsExitCode;
  }
}

void check_name(const std::string& name, const char* option) {
  if (as_job_name(name) == name) return;
  throw UsageError(fmt::format("{} '{}': a name has only letters, digits, '-' and '_', and at most {} of them", option,
                               cli::printable(name.substr(0, 2 * kLongestName)), kLongestName));
}

std::string new_job_name(const std::string& stem) {
  std::string name = as_job_name(stem);
  if (name.empty()) name = "job";
  std::array<std::byte, 2> bytes;
  fill_with_secure_random(bytes);
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::localtime_r(&now, &fields);
  const std::string suffix = fmt::format("-{:%Y%m%d-%H%M%S}-{:02x}{:02x}", fields, static_cast<unsigned>(bytes[0]),
                                         static_cast<unsigned>(bytes[1]));
  return name.substr(0, kLongestName - suffix.size()) + suffix;
}

std::string stem_of(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (word.ends_with(".py") || word.ends_with(".sh")) return std::filesystem::path(word).stem().string();
  }
  return std::filesystem::path(command.front()).stem().string();
}

JobConsole::JobConsole(std::string verb, const Remote& remote, std::vector<std::string> environment,
                       std::chrono::milliseconds patience, OnSignal on_signal)
    : verb_(std::move(verb)),
      remote_(remote),
      environment_(std::move(environment)),
      patience_(patience),
      on_signal_(on_signal),
      session_(remote.session(environment_, patience)),
      workspace_(remote.workspace_in(environment_)) {}

std::string JobConsole::upload(const std::string& folder) {
  jobs::client::CodeArchive archive = jobs::client::archive_code(folder);
  const jobs::client::Path path = {"workspaces", workspace_, "code", archive.sha256};
  if (session_.exists(path)) return archive.sha256;
  fmt::print(stderr, "{}: uploads {} {} of {}, {}\n", verb_, archive.files, archive.files == 1 ? "file" : "files",
             folder, cli::shown_bytes(archive.bytes.size()));
  session_.put_bytes(path, std::move(archive.bytes));
  return archive.sha256;
}

Json JobConsole::submit(const JobName& place, const jobs::spec::JobSpec& spec, const std::string& code) {
  session_.put({"workspaces", place.workspace, "experiments", place.experiment});
  jobs::client::Query query;
  if (!code.empty()) query.emplace_back("code", upload(code));
  if (on_signal_ == OnSignal::kStopTheJob) signals_.emplace();  // An upload may still be broken off.
  return session_.put(path_of(place), {{"properties", jobs::spec::to_json(spec, jobs::spec::Secrets::kIncluded)}},
                      query);
}

int JobConsole::show_until_end(const JobName& place, JobView& view, const std::function<void()>& meanwhile) {
  jobs::client::Session session =
      remote_.session(environment_, patience_, meanwhile, [&view](const std::string& line) { view.say(line); });
  say_why_it_waits(session, place, verb_);
  if (view.draws()) view.watch(shown_place(place), look_at(remote_, environment_, place));
  jobs::client::ServerLogs logs(session, place);
  jobs::client::LogTail(
      logs, {}, [&](auto stream, auto text) { view.show_log(stream, text); },
      [&](int attempt) { view.say(verb_ + ": " + sentence_about_attempt(session, place, attempt)); })
      .follow(meanwhile);
  const jobs::resources::Job ended = jobs::resources::job_from_json(session.get(path_of(place)));
  view.end();
  for (const std::string& note : notes_of(session, place)) fmt::print(stderr, "{}: {}\n", verb_, note);
  fmt::print(stderr, "{}: {}\n", verb_, cli::printable(sentence_about_end(ended)));
  return exit_code_of(ended);
}

int JobConsole::follow(const JobName& place) {
  std::optional<Interrupts> interrupts;
  JobView view(cli::live_options_from_environment(), verb_, [&] {
    if (interrupts) interrupts->look();
  });
  if (signals_) {
    interrupts.emplace(*signals_, verb_, shown_place(place), view, [&] {
      remote_.session(environment_, kStopPatience).post(jobs::client::below(path_of(place), "terminate"));
    });
  }
  try {
    const int exit_code = show_until_end(place, view, [&] {
      view.tick();
      if (interrupts) interrupts->look();
    });
    const auto stopped_with = interrupts ? interrupts->stopped_with() : std::nullopt;
    return stopped_with ? kSignalExitCode + *stopped_with : exit_code;
  } catch (const Left&) {
    view.end();
    const bool stopped = interrupts && interrupts->stopped_with();
    fmt::print(stderr, "{0}: {1} {2}; `gyre job logs -f {1}` follows it again\n", verb_, shown_place(place),
               stopped ? "is being stopped" : "goes on");
    return kSignalExitCode + signals_->received();
  } catch (const Error& error) {
    view.end();
    fmt::print(
        stderr,
        "{0}: {1}\n{0}: the job may go on; `gyre job logs -f {2}` follows it again, `gyre job stop {2}` stops it\n",
        verb_, error.what(), shown_place(place));
    return jobs::resources::kNotTheJobsExitCode;
  }
}

}  // namespace gyre::app
