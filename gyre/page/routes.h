#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gyre/net/http/router.h"
#include "gyre/page/job_view.h"

namespace gyre::page {

/// The page itself, for add_page_routes(). Views of what lives as long as the program.
struct PageFiles {
  std::string_view script;
  std::string_view style;
};

/// What the page shows: one job that runs (add_job_routes() below "api"), or a job server (add_forwarding() below
/// "service").
enum class PageKind : std::uint8_t { kJob, kService };

/// Who may: wraps every handler.
using Guard = std::function<net::http::Handler(net::http::Handler)>;
/// The job that a request names. HttpError(404).
using FindJob = std::function<std::shared_ptr<JobView>(const net::http::Request&)>;

/// Below `prefix`, which may be empty:
///
///   GET /job          the job: JobView::job_json()
///   GET /index        its runs and the names of its charts
///   GET /chart        ?name=NAME[&axis=step|time][&from=A][&to=B]
///   GET /charts       ?names=["NAME",…]: several whole ones, at most 64
///   GET /timeline     ?[from=A][&to=B] (microseconds since 1970): JobView::timeline_json()
///   GET /metrics      the latest values for Prometheus, in its text format
///   GET /ranks/N/log  text; ranges as HTTP has them
///   GET /now          {"job": as /job, "metrics": a version, "timeline": a version, "logs": {rank: bytes},
///   "log_names":
///                     {rank: name}, "over"}: what /live says first, for those who ask again instead
///   GET /live         server-sent events "job" (as /job), "metrics" and "timeline" (versions), and "logs"
///                     ({rank: bytes}), each when it has changed, and "alive" after two seconds without any of
///                     these; nothing is queued for a viewer: whoever comes late gets what is so now. A viewer that has
///                     fetched the end of a job ends the stream: its job waits for that for a while.
/// `open`: the guard alone decides who may; else the server's authenticator does before, and there is no /live.
void add_job_routes(net::http::Router& router, const std::string& prefix, const FindJob& find, const Guard& guard,
                    bool open = true);

/// Below `prefix`, "/page", "/page.js" and "/page.css"; and "/icon.svg". The first answers in HTML also where the guard
/// refuses. The page asks for all else relative to its own address.
void add_page_routes(net::http::Router& router, const std::string& prefix, const PageFiles& files, PageKind kind,
                     const Guard& guard);

}  // namespace gyre::page
