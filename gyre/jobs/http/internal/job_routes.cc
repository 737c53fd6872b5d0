#include <fmt/format.h>

#include <algorithm>

#include "gyre/jobs/http/internal/code.h"
#include "gyre/jobs/http/internal/requests.h"
#include "gyre/jobs/http/internal/spec_errors.h"
#include "gyre/net/http/message.h"

namespace gyre::jobs::http::internal {
namespace {

resources::JobFilter filter_in(const Request& request) {
  resources::JobFilter filter;
  const auto name = [&](std::string_view parameter) -> std::optional<std::string> {
    const std::string* text = request.query(parameter);
    if (text == nullptr) return std::nullopt;
    if (!is_name(*text)) {
      throw HttpError(400, "InvalidParameter", fmt::format("'{}' is '{}', which is not a name", parameter, *text),
                      std::string(parameter));
    }
    return *text;
  };
  filter.experiment = name("experiment");
  filter.cluster = name("cluster");
  if (const std::string* text = request.query("state")) {
    const auto states = resources::state_names<resources::ExecutionState>();
    const auto meant = std::ranges::find_if(
        states, [&](std::string_view state) { return net::http::equal_without_case(state, *text); });
    if (meant == states.end()) {
      throw HttpError(
          400, "InvalidParameter",
          fmt::format("'state' is '{}'; queued, running, terminating, succeeded or failed is needed", *text), "state");
    }
    filter.state = resources::state_named<resources::ExecutionState>(*meant);
  }
  return filter;
}

/// The cluster that a job names. One of another workspace must be the sender's to use as well.
resources::ClusterName cluster_of(service::JobService& service, const spec::JobSpec& spec, const std::string& workspace,
                                  const resources::User& sender) {
  if (spec.cluster_id.empty()) {
    throw HttpError(400, "InvalidClusterId", "the job names no cluster", "/properties/cluster/id");
  }
  resources::ClusterName name = parse_cluster_id(spec.cluster_id, workspace);
  if (name.workspace != workspace && !service.may_use(sender, name.workspace)) {
    throw workspace_not_found(service, sender, name.workspace);
  }
  return name;
}

Response put_job(service::JobService& service, const Request& request, const resources::User& sender) {
  const resources::JobName name = job_in(request);
  auto parsed = spec::parse_job(request.body, parse_options(flag_in(request, "strict")));
  if (!parsed.spec) throw spec_error("InvalidJob", parsed.problems);
  resources::Submission submission{.spec = std::move(*parsed.spec), .sender = sender};
  submission.cluster = cluster_of(service, submission.spec, name.workspace, sender);
  if (const std::string* code = request.query("code")) submission.code = checked_sha256(*code);
  const resources::Created<resources::Job> created = service.submit(name, submission);
  nlohmann::json body = to_json(created.item);
  nlohmann::json warnings = nlohmann::json::array();
  for (const spec::Problem& problem : parsed.problems) warnings.push_back(spec::describe(problem));
  body["gyre"]["warnings"] = std::move(warnings);
  return answer(created.is_new ? 201 : 200, body);
}

/// Whoever knows the checksum of an archive can start a job with it, and read it there.
Response get_job(service::JobService& service, const Request& request, const resources::User& sender) {
  const resources::JobName name = job_in(request);
  const resources::Job job = service.job(name);
  nlohmann::json body = to_json(job);
  const std::string code = service.code_of(name);
  body["gyre"]["hasCode"] = !code.empty();
  if (!code.empty() && (sender.is_administrator || sender.name == job.submitter)) body["gyre"]["code"] = code;
  return answer(200, body);
}

Response list_jobs(service::JobService& service, const Request& request, const resources::JobFilter& filter) {
  return page_answer(request, service.jobs(request.parameter("workspace"), filter, page_in(request)));
}

}  // namespace

void add_job_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  const std::string jobs = "/workspaces/{workspace}/experiments/{experiment}/jobs";
  const std::string job = jobs + "/{job}";
  add_in_workspace(
      router, interface, Method::kGet, "/workspaces/{workspace}/jobs",
      [service](Request& request, const resources::User&) { return list_jobs(*service, request, filter_in(request)); },
      [](Route& route) {
        route.query = kPageParameters;
        route.query.insert(route.query.end(), {"experiment", "cluster", "state"});
      });
  add_in_workspace(
      router, interface, Method::kGet, jobs,
      [service](Request& request, const resources::User&) {
        resources::JobFilter filter = filter_in(request);
        filter.experiment = name_in(request, "experiment");
        return list_jobs(*service, request, filter);
      },
      [](Route& route) {
        route.query = kPageParameters;
        route.query.insert(route.query.end(), {"cluster", "state"});
      });
  add_in_workspace(router, interface, Method::kGet, job, [service](Request& request, const resources::User& sender) {
    return get_job(*service, request, sender);
  });
  add_in_workspace(
      router, interface, Method::kPut, job,
      [service](Request& request, const resources::User& sender) { return put_job(*service, request, sender); },
      [](Route& route) {
        route.body_bytes = spec::kMostFileBytes;
        route.query = {"code", "strict"};
      });
  add_in_workspace(router, interface, Method::kDelete, job, [service](Request& request, const resources::User&) {
    service->delete_job(job_in(request));
    return Response{.status = 202};
  });
  add_in_workspace(
      router, interface, Method::kPost, job + "/terminate",
      [service](Request& request, const resources::User&) {
        const resources::JobName name = job_in(request);
        return answer(200, to_json(flag_in(request, "force") ? service->terminate_without_nodes(name)
                                                             : service->terminate(name)));
      },
      [](Route& route) { route.query = {"force"}; });
  add_in_workspace(router, interface, Method::kPost, job + "/retry",
                   [service](Request& request, const resources::User&) {
                     return answer(200, to_json(service->retry(job_in(request))));
                   });
  add_in_workspace(router, interface, Method::kGet, job + "/why", [service](Request& request, const resources::User&) {
    return answer(200, to_json(service->why(job_in(request))));
  });
}

}  // namespace gyre::jobs::http::internal
