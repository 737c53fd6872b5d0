#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/service/service.h"
#include "gyre/net/http/server.h"

namespace gyre::app {

/// For `gyre server --help`: the names of `--limit`, each with its meaning and its default.
std::string limits_explained();

/// Sets the limits of one user that `texts` name, each "NAME=N"; the last one of a name counts. UsageError.
void set_limits(const std::vector<std::string>& texts, net::http::ServerLimits& server,
                jobs::service::ServiceOptions& service);

}  // namespace gyre::app
