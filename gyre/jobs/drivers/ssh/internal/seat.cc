#include "gyre/jobs/drivers/ssh/internal/seat.h"

#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/secret_key.h"

namespace gyre::jobs::drivers::ssh {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause{1'000};  // Between two attempts to reach a host.
/// Beyond lease and margin: what an agent needs to end what it has started.
constexpr std::chrono::seconds kLastGrace{10};

constexpr std::string_view kNoAgent = "no agent ";

/// For a sentence.
std::string program(const SeatWorld& world) {
  return world.options.names_gyre ? fmt::format("{} (driverOptions.gyre)", world.options.gyre)
                                  : "the copy of Gyre's program";
}

}  // namespace

Seat::Seat(std::string host, Node node, fs::path words, Past past)
    : host_(std::move(host)),
      node_(std::move(node)),
      words_(std::move(words)),
      begun_(past != Past::kNone),
      runs_(past == Past::kRan),
      next_(SteadyClock::now()),
      heard_(next_) {}

Seat::Errand Seat::errand() const {
  if (ending_) return Errand::kEnd;
  if (copy_) return Errand::kCopy;
  return runs_ ? Errand::kWatch : Errand::kStart;
}

void Seat::look(SeatWorld& world, const std::string& key) {
  if (over_) return;
  if (ending_ && !begun_) {
    session_.reset();
    over_ = true;
    return;
  }
  if (session_) read_session(world);
  // One that has answered only looks on.
  if (session_ && ending_ && errand_of_session_ != Errand::kEnd && answered_) session_.reset();
  const auto now = SteadyClock::now();
  const bool rests = can_wait() && world.hosts.rests(host_);
  if (!session_ && !over_ && now >= next_ && !rests) start_session(world, key);
  const auto alone = world.options.lease + world.options.margin + kLastGrace;
  if (!over_ && begun_ && now - heard_ > alone && (runs_ || ending_)) {
    over_ = unreachable_ = true;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - heard_).count();
    problem_ = fmt::format("{} has not been reached for {} s{}", host_, seconds,
                           problem_.empty() ? "" : fmt::format(" ({})", problem_));
    session_.reset();
  }
}

void Seat::start_session(SeatWorld& world, const std::string& key) {
  const auto now = SteadyClock::now();
  next_ = now + kPause;
  errand_of_session_ = errand();
  answered_ = false;
  try {
    world.client.pin(host_);
  } catch (const Error& error) {
    problem_ = error.what();
    world.hosts.failed(host_, problem_);
    return;
  }
  if (errand_of_session_ == Errand::kCopy) {
    session_.emplace(world.client.start(host_, copy_command(world.archive().sha256), world.archive().file, words_));
    return;
  }
  std::string script;
  const WipedAtEnd wiped(script);
  if (errand_of_session_ == Errand::kEnd) script = end_script(node_);
  if (errand_of_session_ == Errand::kWatch) script = watch_script(node_);
  if (errand_of_session_ == Errand::kStart) {
    const std::string program =
        world.options.names_gyre ? quoted(world.options.gyre) : copied_program(world.archive().sha256);
    script = start_script(world.options, node_, program, key);
    was_begun_ = std::exchange(begun_, true);
  }
  const fs::path input = words_.string() + ".sh";
  write_file_atomically(input, as_bytes(script));
  fs::permissions(input, fs::perms::owner_read | fs::perms::owner_write);
  session_.emplace(world.client.start(host_, "sh -s", input, words_));
}

void Seat::read_session(SeatWorld& world) {
  const bool ended = session_->process.exit_status().has_value();
  std::istringstream lines(text_of(session_->out));
  for (std::string line; std::getline(lines, line);) {
    answered_ = true;
    if (line == "here") {
      heard_ = SteadyClock::now();
      world.hosts.answered(host_);
    } else if (line == "runs") {
      runs_ = true;
      problem_.clear();
    } else if (line == "missing") {
      copy_ = true;
    } else if (line == "over" || line.starts_with("over ")) {
      over_ = true;
      failed_ = line != "over" && line != "over 0";
    } else if (line.starts_with(kNoAgent)) {
      over_ = failed_ = true;
      problem_ = fmt::format("{} on {} has ended at once, with exit code {}{}{}", program(world), host_,
                             line.substr(kNoAgent.size()), problem_.empty() ? "" : ": ", problem_);
    } else if (errand_of_session_ == Errand::kStart && runs_ && !line.empty()) {
      problem_ = line;  // What the agent has said at its end.
    }
  }
  if (ended && !over_) finish_session(world);
  if (ended) session_.reset();
}

/// The connection is over, and the node is not.
void Seat::finish_session(SeatWorld& world) {
  const auto status = session_->process.exit_status();
  if (errand_of_session_ == Errand::kCopy && status->success()) {
    copy_ = false;
    next_ = SteadyClock::now();
    return;
  }
  if (copy_ && errand_of_session_ == Errand::kStart) {
    begun_ = false;
    next_ = SteadyClock::now();
    if (!world.options.names_gyre) return;
    copy_ = false;
    over_ = failed_ = true;
    problem_ = fmt::format("there is no {} on {}", program(world), host_);
    return;
  }
  if (errand_of_session_ == Errand::kStart && !answered_ && !runs_) begun_ = was_begun_;
  const std::string words = last_words(session_->error);
  problem_ = fmt::format("{}: {}", host_, words);
  constexpr int kNoConnection = 255;  // Of ssh.
  if (!answered_ && status->code == kNoConnection) world.hosts.failed(host_, words);
}

}  // namespace gyre::jobs::drivers::ssh
