#include "gyre/jobs/node/internal/job_shells.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/failure_causes.h"
#include "gyre/jobs/node/internal/launch_specification.h"
#include "gyre/jobs/node/internal/process_set.h"
#include "gyre/jobs/node/launched_set.h"
#include "gyre/jobs/node/remote_shell.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node::internal {

using orders::NodeFacts;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

UniqueFd key_in_memory(const std::string& digits) {
  UniqueFd fd(::memfd_create("gyre-shell-key", MFD_CLOEXEC));
  if (!fd) throw system_error("cannot make room for a key", errno);
  write_all(fd.get(), as_bytes(digits), "the shells' key");
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

}  // namespace

int start_shell(const AttemptTask& task, const Variables& environment) {
  const WorkOrder& order = task.state.order;
  const NodeFolders folders(task.root);
  const fs::path socket = folders.socket("shell");
  // One that a process before us had started, and whose port it did not live to write down, is of no use.
  end_set(socket);
  std::error_code ignored;
  fs::remove(socket, ignored);
  const net::Endpoint anywhere{net::Endpoint::Kind::kTcp, order.here().address, 0};
  const UniqueFd listener = net::listen_on(anywhere);
  const UniqueFd key = key_in_memory(order.key);
  const std::string program = attempt_program(task.gyre_program);
  Started process;
  process.command =
      without_rank_variables({program, "agent-shell-server", "--listen-fd", std::to_string(listener.get()), "--key-fd",
                              std::to_string(key.get()), "--node", std::to_string(order.node)},
                             order.job);
  process.environment = environment;
  Json specification = launch_specification({process}, socket, job_folder(order, folders));
  specification["ranks"][0]["inherited"] = {{"GYRE_SHELL_FD", listener.get()}, {"GYRE_SHELL_KEY_FD", key.get()}};
  LaunchedSet::start(program, specification, task.base, socket, {listener.get(), key.get()});
  return net::local_endpoint(listener.get()).port;
}

void write_shell_table(const WorkOrder& order, const std::vector<NodeFacts>& all_facts, const NodeFolders& folders) {
  ShellTable table;
  table.key = order.key;
  for (std::size_t node = 0; node < order.nodes.size(); ++node) {
    table.ports[order.nodes[node].address] = all_facts[node].shell_port;
    table.numbers[order.nodes[node].address] = static_cast<std::uint32_t>(node);
    table.addresses[order.nodes[node].id] = order.nodes[node].address;
  }
  std::error_code missing;
  for (const fs::path& note : {folders.private_to_job() / kFailureNote, folders.private_to_job() / kFailedRankNote,
                               folders.start_failure(), folders.missing_output()})
    fs::remove(note, missing);
  write_file_atomically(folders.shell_table(), as_bytes(to_json(table).dump()));
}

}  // namespace gyre::jobs::node::internal
