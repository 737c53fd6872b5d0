#include "apps/gyre/job_view.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "apps/gyre/job_place.h"
#include "gyre/base/error.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

constexpr std::chrono::seconds kBetweenLooks{1};

}  // namespace

void JobView::watch(std::string name, Look look) {
  if (!block_.draws()) return;
  name_ = std::move(name);
  look_ = std::move(look);
  tick();
}

void JobView::tick() {
  if (!look_ || SteadyClock::now() - looked_ < kBetweenLooks) return;
  try {
    block_.show(block_of(look_()));
  } catch (const Error& error) {
    // What is asked of the server otherwise is tried again for as long as it may be.
    block_.show({{fmt::format("{}: {}", name_, error.what()), cli::Tone::kDim}});
  }
  looked_ = SteadyClock::now();
}

void JobView::show_log(jobs::client::LogStream stream, std::string_view text) {
  if (!block_.draws()) return app::show_log(stream, text);
  write(stream, text);
}

void JobView::write(jobs::client::LogStream stream, std::string_view text) {
  block_.write(stream == jobs::client::LogStream::kOut ? stdout : stderr, text);
}

void JobView::say(const std::string& line) { block_.write(stderr, line + "\n"); }

void JobView::end() {
  look_ = nullptr;
  block_.clear();
}

JobView::Look look_at(const Remote& remote, const std::vector<std::string>& environment,
                      const jobs::resources::JobName& job) {
  const auto session = std::make_shared<jobs::client::Session>(remote.session(environment));
  return [session, job] {
    const auto found = jobs::resources::job_from_json(session->get(jobs::client::path_of(job)));
    jobs::client::JobGlance glance = jobs::client::glance_of(found, shown_place(job), wall_clock_us());
    if (found.execution_state == jobs::resources::ExecutionState::kQueued) {
      const auto why =
          jobs::resources::explanation_from_json(session->get(jobs::client::below(jobs::client::path_of(job), "why")));
      glance.detail = "waits: " + why.message;
    }
    return glance;
  };
}

}  // namespace gyre::app
