#pragma once

#include <string>

#include "gyre/net/http/client.h"
#include "gyre/net/http/router.h"
#include "gyre/page/routes.h"

namespace gyre::page {

/// Below `prefix`: GET, PUT, POST and DELETE of what another server of ours has there, as whom `server` says. Its
/// errors are passed on; where it does not answer, 502 "ServerAway". Files go through in pieces. Streams are refused: a
/// page asks again.
void add_forwarding(net::http::Router& router, const std::string& prefix, const net::http::ClientOptions& server,
                    const Guard& guard);

}  // namespace gyre::page
