#include "apps/gyre/job_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>

#include "apps/gyre/job_place.h"
#include "gyre/base/error.h"

namespace gyre::app {

namespace {

using cli::Tone;

constexpr std::chrono::seconds kBetweenLooks{1};

Tone tone_of(const std::string& state) {
  if (state == "succeeded") return Tone::kGood;
  if (state == "failed" || state == "terminating") return Tone::kBad;
  return state == "running" ? Tone::kBusy : Tone::kDim;
}

}  // namespace

std::vector<cli::BlockLine> block_of(const JobGlance& job) {
  std::string first = fmt::format("{}  {}  {} node{}", job.name, job.state, job.nodes, job.nodes == 1 ? "" : "s");
  if (!job.since.empty()) first += "  " + job.since;
  if (job.attempts > 1) first += fmt::format("  attempt {}", job.attempts);
  std::vector<cli::BlockLine> lines = {{first, tone_of(job.state)}};
  if (!job.node_names.empty()) lines.push_back({fmt::format("  on {}", fmt::join(job.node_names, ", ")), Tone::kDim});
  if (!job.detail.empty()) lines.push_back({"  " + job.detail, Tone::kDim});
  return lines;
}

void RemoteJobView::watch(const jobs::resources::JobName& job) {
  if (!block_.draws()) return;
  session_.emplace(remote_.session(environment_));
  job_ = job;
  tick();
}

JobGlance RemoteJobView::glance() {
  const Json job = session_->get(path_of(*job_));
  JobGlance glance{.name = shown_place(*job_), .state = text_at(job, "/properties/executionState")};
  glance.nodes = job.value(Json::json_pointer("/properties/nodeCount"), 0);
  glance.attempts = job.value(Json::json_pointer("/gyre/attempts"), 0);
  const std::string start = text_at(job, "/properties/executionInfo/startTime");
  const bool waits = glance.state == "queued";
  glance.since = shown_duration(waits || start.empty() ? text_at(job, "/properties/creationTime") : start,
                                text_at(job, "/properties/executionInfo/endTime"));
  if (waits) {
    const Json why = session_->get(jobs::client::below(path_of(*job_), "why"));
    glance.detail = "waits: " + text_at(why, "/message");
  }
  return glance;
}

void RemoteJobView::tick() {
  if (!job_ || SteadyClock::now() - looked_ < kBetweenLooks) return;
  try {
    block_.show(block_of(glance()));
  } catch (const Error& error) {
    // What is asked of the server otherwise is tried again for as long as it may be.
    block_.show({{fmt::format("{}: {}", shown_place(*job_), error.what()), Tone::kDim}});
  }
  looked_ = SteadyClock::now();
}

void RemoteJobView::show_log(jobs::client::LogStream stream, std::string_view text) {
  if (!block_.draws()) return app::show_log(stream, text);
  block_.write(stream == jobs::client::LogStream::kOut ? stdout : stderr, text);
}

void RemoteJobView::say(const std::string& line) { block_.write(stderr, line + "\n"); }

void RemoteJobView::end() {
  job_.reset();
  block_.clear();
}

}  // namespace gyre::app
