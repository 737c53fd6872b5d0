#include "apps/gyre/page_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/page_files.h"
#include "gyre/base/parse.h"
#include "gyre/jobs/client/connection.h"
#include "gyre/net/http/server.h"
#include "gyre/page/access.h"
#include "gyre/page/forward.h"
#include "gyre/page/routes.h"

namespace gyre::app {

namespace {

/// Long enough for a server that is busy, short enough for somebody who looks at a page.
constexpr std::chrono::seconds kLongestAnswer{20};
constexpr std::chrono::seconds kLongestConnect{2};

net::http::ClientOptions client_options(const jobs::client::Connection& connection) {
  return {.endpoint = connection.place.endpoint,
          .token = connection.token,
          .fingerprint = connection.place.fingerprint,
          .server_account = connection.server_account,
          .connect = kLongestConnect,
          .silence = kLongestAnswer};
}

}  // namespace

PageCommand::PageCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("page", "Show a job server in a browser: queue, jobs, logs, files, nodes");
  remote_.add_options(*verb, Remote::kServerOnly);
  verb->add_option("--port", port_, "Listen at this port of 127.0.0.1 (default: a free one)")->type_name("PORT");
  verb->footer(
      "\nPrints a link that lets one browser in, once, and serves until Ctrl-C. What the browser does is done as "
      "you. The page makes links for further browsers.\n\n"
      "Examples:\n  gyre page\n  gyre page --server https://login:7710#FINGERPRINT --port 8100");
}

int PageCommand::run(const std::vector<std::string>& environment) const {
  const int port = port_.empty() ? 0 : static_cast<int>(parse_integer(port_, "--port", 1, 65'535));
  EndSignals signals;  // Before any thread, so that none of them gets these signals.
  const auto connection = jobs::client::find_connection({remote_.server, remote_.token_file}, environment);
  remote_.session(environment).get({});  // Says in a sentence what is wrong with the server, or with the token.
  page::Access access(fmt::format("gyre-page-{}", ::getpid()));
  const page::Guard guard = [&access](net::http::Handler handler) { return access.guarded(std::move(handler)); };
  net::http::Router router;
  access.add_entry_routes(router);
  const std::string place(page::Access::kPlace);
  router.add(access.new_link_route("/links"));
  page::add_page_routes(router, place, page_files(), page::PageKind::kService, guard);
  page::add_forwarding(router, place + "/service", client_options(connection), guard);
  net::http::ServerOptions options;
  options.what = "the page";
  options.endpoints = {net::parse_endpoint(fmt::format("tcp:127.0.0.1:{}", port))};
  net::http::Server server(std::move(options), std::move(router));
  fmt::print(stderr, "gyre page: for one browser, until Ctrl-C: http://127.0.0.1:{}{}\n",
             server.endpoints().front().port, access.new_link());
  signals.wait(-1);
  server.stop(std::chrono::milliseconds(0));
  return 0;
}

}  // namespace gyre::app
