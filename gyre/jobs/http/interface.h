#pragma once

#include <cstdint>
#include <memory>

#include "gyre/jobs/service/job_service.h"
#include "gyre/net/http/router.h"
#include "gyre/net/http/server.h"

namespace gyre::jobs::http {

struct InterfaceLimits {
  std::uint64_t code_bytes = std::uint64_t{2} << 30;  ///< Of one archive of code.
  int listed_files = 1'000;                           ///< In one answer.
};

/// The service's HTTP interface. Every path below /workspaces names its workspace; who may not use it hears what
/// everybody hears of a workspace that does not exist. Resources have the form of Batch AI's REST of 2018-05-01:
/// {"id", "name", "type", "properties": {…}}, lists {"value": […], "nextLink"}, with ids that are paths of this
/// interface.
///
///   GET                     /                                         name, version, the sender and what it is
///   GET                     /health                                   open to everybody: {"status": "ok"}
///   GET                     /metrics                                  jobs and nodes of the sender's workspaces, for
///                                                             Prometheus; of one job's ranks: …/run/metrics
///   GET                     /users                                    administrators: also the following four
///   PUT PATCH DELETE        /users/{user}                             PUT answers with the token, once
///   POST                    /users/{user}/renewToken
///   GET                     /workspaces
///   GET PUT DELETE          /workspaces/{w}                           PUT: administrators
///   GET                     /workspaces/{w}/usages
///   PUT                     /workspaces/{w}/quotas                    administrators: cores, lowPriorityCores
///   GET                     /workspaces/{w}/owners
///   PUT DELETE              /workspaces/{w}/owners/{user}
///   GET                     /workspaces/{w}/events
///   GET PUT                 /workspaces/{w}/code/{sha256}             a tar archive; GET: 204 where it is kept
///   GET                     /workspaces/{w}/clusters
///   GET PUT PATCH DELETE    /workspaces/{w}/clusters/{c}              administrators, but for GET; PATCH:
///                                                             scaleSettings
///   GET                     /workspaces/{w}/clusters/{c}/nodes
///   GET                     /workspaces/{w}/clusters/{c}/use          ?hours=: its nodes and waiting jobs over time
///   GET                     /workspaces/{w}/clusters/{c}/events
///   GET                     /workspaces/{w}/experiments
///   GET PUT DELETE          /workspaces/{w}/experiments/{e}
///   GET                     /workspaces/{w}/jobs                      ?experiment= ?cluster= ?state=
///   GET                     /workspaces/{w}/experiments/{e}/jobs
///   GET PUT DELETE          /workspaces/{w}/experiments/{e}/jobs/{j}  PUT: a job.json (or YAML); ?code=SHA256
///                                                             GET: with the checksum, for its submitter
///   POST                    …/jobs/{j}/terminate
///   POST                    …/jobs/{j}/forward                        ?port= ?rank=: with "Upgrade: gyre-stream", a
///                                                             connection to a port of that rank's node (ADR 134);
///                                                             without, 204 where it could be opened
///   GET                     …/jobs/{j}/why
///   GET                     …/jobs/{j}/events
///   GET                     …/jobs/{j}/files                          ?outputdirectoryid= ?directory= ?maxresults=
///   GET                     …/jobs/{j}/run/job                        its ranks; …/run/now, …/run/index, …/run/chart,
///                                                             …/run/charts, …/run/ranks/N/log, …/run/metrics:
///                                                             page/routes.h
///   GET                     …/jobs/{j}/files/{id}/{path…}             ranges; ?follow=true ?offset=
///
/// HEAD is as GET. Lists take ?after= (nextLink has it), ?maxresults= and ?order=newest. Events are a list too, or
/// server-sent events for "Accept: text/event-stream", from ?after= or Last-Event-ID on; a job's end after its last
/// one. A list of files says `complete` once nothing writes into them any more, and gives each a `fileId`, another one
/// where a new file has its name. PUT answers 201 for a new resource and 200 for one that was there alike; DELETE 202,
/// because deletion goes on.
net::http::Router make_router(std::shared_ptr<service::JobService> service, const InterfaceLimits& limits = {});

/// For ServerOptions::authenticate.
net::http::Authenticator make_authenticator(std::shared_ptr<service::JobService> service);

}  // namespace gyre::jobs::http
