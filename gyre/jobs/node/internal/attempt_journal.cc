#include "gyre/jobs/node/internal/attempt_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/process_logs.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/redactor.h"

namespace gyre::jobs::node::internal {

using orders::NodeFacts;
using orders::NodeReport;
using orders::Phase;

namespace {

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

std::string log_line(const std::string& sentence, const std::vector<std::string>& secrets) {
  Redactor redactor(secrets);
  std::string line = redactor.pass(fmt::format("{} {}", now_as_text(), sentence));
  return line + redactor.finish();
}

AttemptJournal::AttemptJournal(const AttemptTask& task, AttemptHost& host)
    : task_(task), host_(host), state_(task.state), secrets_(secret_values(task.state.order)) {}

void AttemptJournal::take(Step step) {
  state_.step = step;
  host_.save(state_);
}

void AttemptJournal::take_facts(const NodeFacts& facts) {
  state_.facts = facts;
  take(Step::kPrepared);
}

void AttemptJournal::run_with(const std::vector<NodeFacts>& all_facts) {
  state_.all_facts = all_facts;
  take(Step::kRunning);
}

void AttemptJournal::remember_log_lengths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) state_.log_lengths.try_emplace(path, length_of(path));
  host_.save(state_);
}

void AttemptJournal::stop(const AttemptEnds& end) {
  state_.record = record_of(end, state_.started_us);
  for (const std::string& sentence : sentences_about(end)) log(sentence);
  try {
    take(Step::kStopped);
  } catch (const Error& error) {
    note(fmt::format("the exit record could not be written: {}", error.what()));
  }
}

void AttemptJournal::add_left_behind(const std::string& what) {
  state_.record->left_behind.push_back(what);
  note(fmt::format("node {}: the job left {}", order().here().id, what));
}

void AttemptJournal::reach(Phase phase) {
  phase_ = std::max(phase_, phase);
  host_.report(phase_, state_.notes);
}

void AttemptJournal::note(const std::string& sentence) {
  const auto& known = state_.notes;
  if (known.size() >= NodeReport::kMostNotes || std::ranges::find(known, sentence) != known.end()) return;
  state_.notes.push_back(sentence);
  host_.report(phase_, state_.notes);
  log(sentence);
}

void AttemptJournal::log(const std::string& sentence) {
  const std::string line = log_line(sentence, secrets_);
  log_.empty() ? host_.keep_line(line) : write_line(line);
}

void AttemptJournal::open_log(const std::string& folder) {
  log_ = folder + "/" + execution_log(order());
  for (const std::string& line : task_.lines) write_line(line);
}

void AttemptJournal::write_line(const std::string& line) const {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
  const UniqueFd file(::open(log_.c_str(), kFlags, 0644));
  if (!file) return;
  const std::string whole = line + "\n";
  // It is for people; what must not be lost is in the record.
  [[maybe_unused]] const ssize_t ignored = ::write(file.get(), whole.data(), whole.size());
}

}  // namespace gyre::jobs::node::internal
