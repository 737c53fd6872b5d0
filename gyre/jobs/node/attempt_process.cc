#include "gyre/jobs/node/attempt_process.h"

#include <fcntl.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/node/internal/attempt_host.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/attempt_task.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/job_commands.h"
#include "gyre/jobs/node/internal/json_lines.h"
#include "gyre/jobs/node/internal/node_run.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::node {

using orders::JsonFields;
using orders::node_facts_from_json;
using orders::NodeFacts;
using orders::Phase;
using orders::stop_reason_named;
using orders::StopReason;

namespace {

using Json = nlohmann::json;
using internal::AttemptTask;
using internal::Commands;
using internal::JsonLines;
using internal::SavedAttempt;
namespace attempt_line = internal::attempt_line;

constexpr std::size_t kMostNodes = 100'000;
constexpr std::int64_t kHighestRank = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLongestGraceS = std::int64_t{7} * 24 * 3600;

/// The node program, as the process of an attempt sees it.
class Host final : public internal::AttemptHost {
 public:
  Host(JsonLines& lines, Commands& commands, internal::JobCommands& job_commands)
      : lines_(lines), commands_(commands), job_commands_(job_commands) {
    thread_ = start_thread("orders of the agent", [this] { listen(); });
  }
  ~Host() override {
    over_.notify();
    thread_.join();
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void save(const SavedAttempt& state) override {
    {
      const MutexLock lock(mutex_);
      answer_.reset();
    }
    tell({{attempt_line::kSave, internal::progress_of(state)}});
    const MutexLock lock(mutex_);
    while (!answer_ && !gone_) answered_.wait(mutex_);
    // A node program that comes later goes on from the state before.
    if (!answer_) throw internal::LeaveNow();
    if (answer_->failure) throw *answer_->failure;
  }
  void report(Phase phase, const std::vector<std::string>& notes) override {
    tell({{attempt_line::kReport, {{"phase", name_of(phase)}, {"notes", notes}}}});
  }
  void keep_line(const std::string& line) override { tell({{attempt_line::kLog, line}}); }

 private:
  void tell(const Json& line) {
    try {
      lines_.send(line);
    } catch (const Error&) {
      return;  // The node program has gone; listen() sees it too.
    }
  }

  void listen() {
    try {
      while (const auto line = lines_.next(Deadline::never(), {over_.fd()})) obey(*line);
      return;
    } catch (const std::exception&) {
      commands_.leave();
    }
    const MutexLock lock(mutex_);
    gone_ = true;
    answered_.notify_all();
  }

  void obey(const Json& line) {
    const JsonFields fields(line, "an order of the agent");
    if (fields.has(attempt_line::kRun)) {
      std::vector<NodeFacts> facts;
      for (const Json& each : fields.array(attempt_line::kRun, kMostNodes)) {
        facts.push_back(node_facts_from_json(each));
      }
      commands_.run(facts);
    } else if (fields.has(attempt_line::kFinish)) {
      commands_.finish();
    } else if (fields.has(attempt_line::kCommand)) {
      const auto rank = static_cast<int>(fields.integer(attempt_line::kCommand, -1, kHighestRank));
      // Of a thread that lives as long as the node program, with which its commands end.
      if (UniqueFd channel = lines_.descriptor()) job_commands_.start(rank, std::move(channel));
    } else if (fields.has(attempt_line::kStop)) {
      const JsonFields stop(fields.at(attempt_line::kStop), "an order to stop");
      const auto reason = stop_reason_named(stop.text("reason"));
      commands_.stop({reason.value_or(StopReason::kRequest),
                      std::chrono::seconds(stop.integer("grace_seconds", 0, kLongestGraceS))});
    } else if (fields.has(attempt_line::kSaved)) {
      const MutexLock lock(mutex_);
      answer_.emplace();
      const std::string why = fields.text(attempt_line::kSaved);
      if (!why.empty()) {
        const auto code = error_code_from_number(static_cast<int>(fields.integer(attempt_line::kCode, 0, kMostCodes)));
        answer_->failure.emplace(code, why);
      }
      answered_.notify_all();
    }
  }

  struct Answer {
    std::optional<Error> failure;
  };
  static constexpr std::int64_t kMostCodes = 1'000;

  JsonLines& lines_;
  Commands& commands_;
  internal::JobCommands& job_commands_;
  net::Notifier over_;
  Mutex mutex_;
  ConditionVariable answered_;
  std::optional<Answer> answer_ GYRE_GUARDED_BY(mutex_);  ///< To the last save().
  bool gone_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

void close_on_exec(int descriptor) {
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) throw system_error("a descriptor of the agent", errno);
}

}  // namespace

int run_attempt_process(int descriptor, const std::vector<std::string>& environment) {
  close_on_exec(descriptor);
  JsonLines lines(UniqueFd(descriptor), internal::kLongestOrderLine, "the agent");
  lines.take_descriptors();
  const auto first = lines.next(Deadline::never(), {});
  AttemptTask task =
      internal::attempt_task_from_json(JsonFields(*first, "the agent's first order").at(attempt_line::kTask));
  if (task.in_container) {
    for (const std::string& entry : environment) {
      const std::size_t equals = entry.find('=');
      if (equals != std::string::npos) task.base[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  const UniqueFd code(task.code_descriptor);
  if (code) close_on_exec(code.get());
  Commands commands;
  internal::JobCommands job_commands(internal::attempt_program(task.gyre_program));
  Host host(lines, commands, job_commands);
  internal::NodeRun run(task, commands, host, job_commands);
  try {
    task.kind == AttemptTask::Kind::kSetup ? run.set_up() : run.go();
  } catch (const internal::LeaveNow&) {
    return 0;
  }
  return 0;
}

}  // namespace gyre::jobs::node
