#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/job_place.h"
#include "apps/gyre/job_verbs.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/client/port_forward.h"

// `gyre job forward`.
namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
using jobs::client::ForwardOptions;
using jobs::client::path_of;
using jobs::client::PortForward;
using jobs::client::Session;

constexpr std::chrono::seconds kBetweenLooks{2};

constexpr char kForwardExplanation[] = R"(
PORT is one of this machine's loopback address (0: the system chooses), REMOTE the one at which the job's program
listens on its node; without REMOTE they are the same. Up to 32 connections to a node can be open at once; one that is cut off is reset, so
that nobody takes a part for the whole. It ends with the job, or with Ctrl-C. Only the job's submitter and
administrators can reach its nodes through the service; whoever is on this machine can connect to the port here.

Examples:
  gyre job forward train-1 6006                    (http://127.0.0.1:6006 shows its TensorBoard)
  gyre job forward train-1 8080:80 --rank 4)";

struct Forward {
  JobOptions job{};
  std::string ports{};
  int rank = 0;
};

std::uint16_t port_in(const std::string& text, int least) {
  try {
    return static_cast<std::uint16_t>(
        parse_integer(text, "PORT[:REMOTE]", least, std::numeric_limits<std::uint16_t>::max()));
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

int forward(const Forward& asked, const Environment& environment) {
  EndSignals signals;  // Before any thread, so that none of them gets these signals.
  Session session = asked.job.remote.session(environment);
  const auto job = asked.job.find(session, environment);
  const std::string shown = shown_place(job);
  const std::size_t colon = asked.ports.find(':');
  ForwardOptions options{.session = session.options(), .job = job, .rank = asked.rank};
  options.local_port = port_in(asked.ports.substr(0, colon), 0);
  if (asked.ports == "0") throw UsageError("PORT 0 needs a REMOTE: 0:6006, say");
  options.remote_port = port_in(asked.ports.substr(colon == std::string::npos ? 0 : colon + 1), 1);
  options.failed = [](const std::string& why) { fmt::print(stderr, "gyre job forward: {}\n", cli::printable(why)); };
  PortForward forward(options);
  write_out(fmt::format("127.0.0.1:{} leads to port {} on the node of rank {} of job '{}'; Ctrl-C ends it\n",
                        forward.local_port(), options.remote_port, asked.rank, shown));
  bool is_away = false;
  for (Deadline look = Deadline::after(kBetweenLooks);;) {
    std::array<pollfd, 2> waits = {{{forward.fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), look.poll_timeout_ms());
    if (waits[1].revents != 0 && signals.wait(0)) return 0;
    forward.accept();
    if (!look.passed()) continue;
    look = Deadline::after(kBetweenLooks);
    try {
      if (has_ended(session.get(path_of(job)))) break;
      is_away = false;
    } catch (const Error& error) {
      if (jobs::client::is_not_found(error)) break;
      if (!std::exchange(is_away, true)) options.failed(error.what());
    }
  }
  fmt::print(stderr, "gyre job forward: job '{}' has ended\n", shown);
  return 0;
}

}  // namespace

void add_job_forward(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("forward", "Reach a port of a running job's node from this machine");
  auto options = std::make_shared<Forward>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_option("PORT", options->ports, "PORT[:REMOTE]: here, and on the node")->required()->type_name("");
  verb->add_option("--rank", options->rank, "Whose node it is")->capture_default_str()->type_name("N");
  verb->footer(kForwardExplanation);
  group.add(verb, [options](const Environment& environment) { return forward(*options, environment); });
}

}  // namespace gyre::app
