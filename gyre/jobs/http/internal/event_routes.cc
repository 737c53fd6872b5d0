#include <charconv>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/http/internal/requests.h"
#include "gyre/net/http/event_stream.h"

namespace gyre::jobs::http::internal {
namespace {

using net::http::EventFeed;

/// The service tells of new events; this is for the case that it could not.
constexpr std::chrono::milliseconds kPollInterval{5'000};

/// The events of a scope, from one on, as they happen.
class ScopeFeed : public EventFeed {
 public:
  ScopeFeed(std::shared_ptr<service::JobService> service, resources::EventScope scope, std::int64_t after)
      : service_(std::move(service)), scope_(std::move(scope)), after_(after) {}

  /// On a thread that may wait; before the server has the feed.
  static std::shared_ptr<ScopeFeed> start(std::shared_ptr<service::JobService> service, resources::EventScope scope,
                                          std::int64_t after) {
    auto feed = std::make_shared<ScopeFeed>(std::move(service), std::move(scope), after);
    feed->watch_ = feed->service_->watch(feed->scope_, [weak = std::weak_ptr(feed)] {
      if (const auto self = weak.lock()) self->wake();
    });
    return feed;
  }

  Batch take(std::size_t most) override {
    // First of all: what happened before a job finished is then sure to be listed below.
    const bool finished = !scope_.job.empty() && is_finished();
    Batch batch;
    for (const resources::Event& event : service_->events(scope_, after_, static_cast<int>(most))) {
      after_ = event.sequence;
      batch.events.push_back({std::to_string(event.sequence), event.subject,
                              to_json(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
    }
    batch.end = finished && batch.events.size() < most;
    return batch;
  }

  void set_wake(std::function<void()> wake) override {
    const MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }

  std::chrono::milliseconds poll_interval() const override { return kPollInterval; }

 private:
  void wake() {
    std::function<void()> wake;
    {
      const MutexLock lock(mutex_);
      wake = wake_;
    }
    if (wake) wake();
  }

  /// Also once it has been deleted.
  bool is_finished() const {
    try {
      const resources::ExecutionState state =
          service_->job({scope_.workspace, scope_.experiment, scope_.job}).execution_state;
      return state == resources::ExecutionState::kSucceeded || state == resources::ExecutionState::kFailed;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) return true;
      throw;
    }
  }

  std::shared_ptr<service::JobService> service_;
  resources::EventScope scope_;
  std::int64_t after_;
  Mutex mutex_;
  std::function<void()> wake_ GYRE_GUARDED_BY(mutex_);
  std::unique_ptr<service::JobService::Watch> watch_;  // Last: it goes first.
};

std::int64_t parse_sequence(const std::string& text, const std::string& what) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0) {
    throw HttpError(400, "InvalidParameter", "'" + what + "' is not the number of an event", what);
  }
  return number;
}

std::int64_t after_in(const Request& request) {
  if (const auto id = net::http::last_event_id(request)) return parse_sequence(*id, "Last-Event-ID");
  const std::string* after = request.query("after");
  return after != nullptr ? parse_sequence(*after, "after") : 0;
}

bool wants_stream(const Request& request) {
  const std::string* accept = request.headers.find("Accept");
  return accept != nullptr && accept->find("text/event-stream") != std::string::npos;
}

Response events_answer(const std::shared_ptr<service::JobService>& service, const Request& request,
                       resources::EventScope scope) {
  const std::int64_t after = after_in(request);
  if (wants_stream(request)) return net::http::event_stream(ScopeFeed::start(service, std::move(scope), after));
  const int most = static_cast<int>(number_in(request, "maxresults", 1, resources::kLongestPage, 100));
  nlohmann::json items = nlohmann::json::array();
  std::int64_t last = after;
  for (const resources::Event& event : service->events(scope, after, most)) {
    last = event.sequence;
    items.push_back(to_json(event));
  }
  const bool is_full = items.size() == static_cast<std::size_t>(most);
  return page_answer(request, std::move(items), is_full ? std::optional(std::to_string(last)) : std::nullopt);
}

}  // namespace

void add_event_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  const std::string workspace = "/workspaces/{workspace}";
  const auto takes_events = [](Route& route) { route.query = {"after", "maxresults"}; };
  add_in_workspace(
      router, interface, Method::kGet, workspace + "/events",
      [service](Request& request, const resources::User&) {
        return events_answer(service, request, {.workspace = request.parameter("workspace")});
      },
      takes_events);
  add_in_workspace(
      router, interface, Method::kGet, workspace + "/clusters/{cluster}/events",
      [service](Request& request, const resources::User&) {
        const resources::ClusterName name = service->cluster(cluster_in(request)).name;
        return events_answer(service, request, {.workspace = name.workspace, .cluster = name.cluster});
      },
      takes_events);
  add_in_workspace(
      router, interface, Method::kGet, workspace + "/experiments/{experiment}/jobs/{job}/events",
      [service](Request& request, const resources::User&) {
        const resources::JobName name = service->job(job_in(request)).name;
        return events_answer(service, request,
                             {.workspace = name.workspace, .experiment = name.experiment, .job = name.job});
      },
      takes_events);
}

}  // namespace gyre::jobs::http::internal
