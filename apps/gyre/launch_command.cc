#include "apps/gyre/launch_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/launch/detached.h"

namespace gyre::app {

namespace {

constexpr char kExplanation[] = R"(
The specification is JSON:

  {"ranks": [{"command": ["python", "train.py"], "count": 4}], "socket": "/run/user/1000/train.sock"}

The ranks keep running when the process that started this one ends. Their output and their ends become numbered records;
a program that connects to the socket and sends {"request": "follow", "after": N} gets the records after number N. If
this process is killed, the ranks are killed too.

Examples:
  gyre launch job.json
  make-job | gyre launch --socket /run/user/1000/train.sock

All fields, records and requests: docs/guide/launch.md)";

std::string read_all_of_stdin() {
  std::string text;
  std::string buffer(std::size_t{64} << 10, '\0');
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read the specification from stdin", errno);
    if (count == 0) return text;
    text.append(buffer, 0, static_cast<std::size_t>(count));
    if (text.size() > launch::kMostSpecBytes) return text;  // Too long; the parser says so.
  }
}

}  // namespace

LaunchCommand::LaunchCommand(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("launch", "Start ranks that keep running when the process that started them ends");
  verb->add_option("SPECIFICATION", specification_, "A file of JSON; - is stdin")->capture_default_str();
  verb->add_option("--socket", socket_, "Path of the socket, overriding the specification's")->type_name("PATH");
  verb->set_version_flag("--version", "gyre " GYRE_VERSION);
  verb->footer(kExplanation);
}

int LaunchCommand::run(const std::vector<std::string>& environment) const {
  const std::string text = specification_ == "-"
                               ? read_all_of_stdin()
                               : std::string(as_text(read_file(specification_, launch::kMostSpecBytes)));
  launch::LaunchSpec spec = launch::parse_launch_spec(text, environment);
  if (!socket_.empty()) spec.socket = std::filesystem::absolute(socket_).string();
  if (spec.socket.empty())
    throw UsageError("give a path for the socket: --socket PATH, or \"socket\" in the specification");
  try {
    return launch::run_detached(spec);
  } catch (const SpawnError& error) {
    fmt::print(stderr, "gyre launch: {}\n", error.what());
    if (error.errno_value() == ENOENT) return 127;
    return error.errno_value() == EAGAIN ? 1 : 126;
  }
}

}  // namespace gyre::app
