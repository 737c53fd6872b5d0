#include "gyre/page/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/event_stream.h"
#include "gyre/net/http/file_response.h"
#include "gyre/page/access.h"
#include "gyre/page/internal/json.h"

namespace gyre::page {

namespace {

using net::http::HttpError;
using net::http::Method;
using net::http::Request;
using net::http::Response;
using net::http::Route;
using net::http::Router;

constexpr std::chrono::milliseconds kPollInterval{250};
/// A viewer takes a longer silence for a server that is stopped, or a network that is gone (web/src/live.ts).
constexpr std::chrono::seconds kLongestSilence{2};
constexpr std::size_t kMostCharts = 64;  // Of one request.
constexpr std::int64_t kFarthestUs = std::int64_t{1} << 60;
constexpr std::string_view kShell = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="gyre" content="@KIND@">
<title>Gyre</title>
<link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="page.css">
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript.</noscript>
<script src="page.js"></script>
</body>
</html>
)";
constexpr std::string_view kIcon =
    R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M8 2a6 6 0 1 0 6 6H9" fill="none" stroke="#0072b2" stroke-width="2.5" stroke-linecap="round"/></svg>)";

/// What is so now, whenever it is not what this viewer has got.
class LiveFeed : public net::http::EventFeed {
 public:
  explicit LiveFeed(std::shared_ptr<JobView> job) : job_(std::move(job)) { job_->viewer_came(); }
  ~LiveFeed() override { job_->viewer_left(); }
  LiveFeed(const LiveFeed&) = delete;
  LiveFeed& operator=(const LiveFeed&) = delete;

  Batch take(std::size_t) override {
    Batch batch;
    const JobView::Versions now = job_->versions();  // First: what changes meanwhile is sent again.
    if (sent_job_ != now.job) batch.events.push_back({.id = {}, .name = "job", .data = *job_->job_json()});
    if (sent_metrics_ != now.metrics) {
      batch.events.push_back({.id = {}, .name = "metrics", .data = std::to_string(now.metrics)});
    }
    if (now.timeline > 0 && sent_timeline_ != now.timeline) {
      batch.events.push_back({.id = {}, .name = "timeline", .data = std::to_string(now.timeline)});
    }
    sent_timeline_ = now.timeline;
    sent_job_ = now.job;
    sent_metrics_ = now.metrics;
    nlohmann::json grown = nlohmann::json::object();
    for (const auto& [rank, bytes] : job_->log_sizes()) {
      const auto [place, is_new] = sent_logs_.try_emplace(rank, 0);
      if (!is_new && place->second == bytes) continue;
      place->second = bytes;
      grown[std::to_string(rank)] = bytes;
    }
    if (!grown.empty()) batch.events.push_back({.id = {}, .name = "logs", .data = internal::text_of(grown)});
    const auto time = SteadyClock::now();
    if (batch.events.empty() && time - said_ >= kLongestSilence) {
      batch.events.push_back({.id = {}, .name = "alive", .data = "1"});
    }
    if (!batch.events.empty()) said_ = time;
    batch.end = now.is_closed;
    return batch;
  }
  std::chrono::milliseconds poll_interval() const override { return kPollInterval; }

 private:
  std::shared_ptr<JobView> job_;
  std::optional<std::uint64_t> sent_job_;
  std::optional<std::uint64_t> sent_metrics_;
  std::uint64_t sent_timeline_ = 0;
  std::map<int, std::uint64_t> sent_logs_;
  SteadyClock::time_point said_;
};

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

double bound_in(const Request& request, std::string_view name, double otherwise) {
  const std::string* text = request.query(name);
  if (text == nullptr) return otherwise;
  const auto bound = parse<double>(*text);
  if (!bound || !std::isfinite(*bound)) {
    throw HttpError(400, "InvalidParameter", fmt::format("'{}' is '{}', which is not a number", name, *text),
                    std::string(name));
  }
  return *bound;
}

ChartRange range_in(const Request& request) {
  ChartRange range;
  if (const std::string* axis = request.query("axis")) {
    if (*axis != "step" && *axis != "time") {
      throw HttpError(400, "InvalidParameter", "'axis' is neither 'step' nor 'time'", "axis");
    }
    range.over_time = *axis == "time";
  }
  range.from = bound_in(request, "from", range.from);
  range.to = bound_in(request, "to", range.to);
  return range;
}

Response chart_answer(JobView& job, const Request& request) {
  const std::string* name = request.query("name");
  if (name == nullptr) throw HttpError(400, "MissingParameter", "'name' says which chart is wanted", "name");
  return net::http::json_response(200, *job.chart_json(*name, range_in(request)));
}

/// In the order of the request.
Response charts_answer(JobView& job, const Request& request) {
  const std::string* text = request.query("names");
  const auto names = nlohmann::json::parse(text != nullptr ? *text : "", nullptr, false);
  const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
  if (!names.is_array() || names.size() > kMostCharts || !std::ranges::all_of(names, is_text)) {
    throw HttpError(400, "InvalidParameter",
                    fmt::format("'names' is to be a JSON list of at most {} names of charts", kMostCharts), "names");
  }
  std::string charts;
  for (const nlohmann::json& name : names) {
    charts += (charts.empty() ? "" : ",") + *job.chart_json(name.get<std::string>(), {});
  }
  return net::http::json_response(200, "[" + charts + "]");
}

Response timeline_answer(JobView& job, const Request& request) {
  const auto bound = [&request](std::string_view name) -> std::optional<std::int64_t> {
    const std::string* text = request.query(name);
    if (text == nullptr) return std::nullopt;
    const auto number = parse<std::int64_t>(*text);
    if (number && std::abs(*number) <= kFarthestUs) return number;
    throw HttpError(400, "InvalidParameter", fmt::format("'{}' is '{}', which is not a time", name, *text),
                    std::string(name));
  };
  return net::http::json_response(200, job.timeline_json(bound("from"), bound("to")));
}

Response now_answer(JobView& job) {
  job.asked();
  const JobView::Versions versions = job.versions();
  nlohmann::json logs = nlohmann::json::object();
  const auto text = job.job_json();
  nlohmann::json names = nlohmann::json::object();
  for (const auto& [rank, bytes] : job.log_sizes()) logs[std::to_string(rank)] = bytes;
  for (const auto& [rank, name] : job.log_names()) names[std::to_string(rank)] = name;
  return net::http::json_response(
      200, fmt::format(R"({{"job": {}, "metrics": {}, "timeline": {}, "logs": {}, "log_names": {}, "over": {}}})",
                       *text, versions.metrics, versions.timeline, internal::text_of(logs), internal::text_of(names),
                       versions.is_over));
}

Response log_answer(JobView& job, const Request& request) {
  const auto rank = parse<int>(request.parameter("rank"));
  if (!rank) throw HttpError(404, "RankNotFound", "a rank is a number", request.parameter("rank"));
  return net::http::file_response(request, job.open_log(*rank), "text/plain; charset=utf-8");
}

std::string shell_of(PageKind kind) {
  constexpr std::string_view kMark = "@KIND@";
  std::string text(kShell);
  return text.replace(text.find(kMark), kMark.size(), kind == PageKind::kJob ? "job" : "service");
}

Response text_answer(std::string_view text, std::string_view type) {
  Response response;
  response.headers.add("Content-Type", std::string(type));
  response.body = text;
  return response;
}

Response refusal(const HttpError& error) {
  std::string text = error.what();
  std::erase_if(text, [](char letter) { return letter == '<' || letter == '&'; });
  Response response = text_answer(fmt::format("<!doctype html><html lang=\"en\"><title>Gyre</title><link rel=\"icon\" "
                                              "href=\"/icon.svg\"><h1>Not this way</h1><p>{}.",
                                              text),
                                  "text/html; charset=utf-8");
  response.status = error.status();
  return protect(std::move(response));
}

}  // namespace

std::string JobView::timeline_json(std::optional<std::int64_t>, std::optional<std::int64_t>) {
  throw HttpError(404, "TimelineNotFound", "the ranks of this job write no timeline", "timeline");
}

void add_job_routes(Router& router, const std::string& prefix, const FindJob& find, const Guard& guard, bool open) {
  const auto add = [&](const std::string& path, std::vector<std::string> query, auto answer) {
    router.add({.method = Method::kGet,
                .pattern = prefix + path,
                .handler = guard([find, answer](Request& request) { return answer(find(request), request); }),
                .query = std::move(query),
                .open = open});
  };
  using Job = std::shared_ptr<JobView>;
  add("/job", {}, [](const Job& job, const Request&) { return net::http::json_response(200, *job->job_json()); });
  add("/index", {}, [](const Job& job, const Request&) { return net::http::json_response(200, *job->index_json()); });
  add("/chart", {"name", "axis", "from", "to"},
      [](const Job& job, const Request& request) { return chart_answer(*job, request); });
  add("/charts", {"names"}, [](const Job& job, const Request& request) { return charts_answer(*job, request); });
  add("/timeline", {"from", "to"},
      [](const Job& job, const Request& request) { return timeline_answer(*job, request); });
  add("/metrics", {}, [](const Job& job, const Request&) {
    return text_answer(job->prometheus_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  add("/ranks/{rank}/log", {}, [](const Job& job, const Request& request) { return log_answer(*job, request); });
  add("/now", {}, [](const Job& job, const Request&) { return now_answer(*job); });
  if (!open) return;  // A stream would keep its job open for as long as it likes, however many those are.
  add("/live", {}, [](const Job& job, const Request&) {
    return net::http::event_stream(std::make_shared<LiveFeed>(job), std::chrono::seconds(5));
  });
}

void add_page_routes(Router& router, const std::string& prefix, const PageFiles& files, PageKind kind,
                     const Guard& guard) {
  const auto add = [&](const char* path, std::string_view text, std::string_view type) {
    router.add({.method = Method::kGet,
                .pattern = prefix + path,
                .handler = guard([text, type](Request&) { return text_answer(text, type); }),
                .open = true});
  };
  const net::http::Handler shell =
      guard([text = shell_of(kind)](Request&) { return text_answer(text, "text/html; charset=utf-8"); });
  router.add({.method = Method::kGet,
              .pattern = prefix + "/page",
              .handler =
                  [shell](Request& request) {
                    try {
                      return shell(request);
                    } catch (const HttpError& error) {
                      return refusal(error);
                    }
                  },
              .open = true});
  add("/page.js", files.script, "text/javascript; charset=utf-8");
  add("/page.css", files.style, "text/css; charset=utf-8");
  // Open: browsers ask for it on the pages of those who may not, too.
  router.add({.method = Method::kGet,
              .pattern = "/icon.svg",
              .handler = [](Request&) { return protect(text_answer(kIcon, "image/svg+xml")); },
              .open = true});
}

}  // namespace gyre::page
