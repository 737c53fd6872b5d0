// The remote shell of a NodeRun: the job's nodes reach each other through it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/jobs/agent/internal/node_run.h"
#include "gyre/jobs/agent/remote_shell.h"
#include "gyre/jobs/agent/secure_connection.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::agent::internal {

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

int NodeRun::start_shell() {
  const fs::path socket = folders_.socket("shell");
  // One that an agent before us had started, and whose port it did not live to write down, is of no use.
  end_set(socket);
  std::error_code ignored;
  fs::remove(socket, ignored);
  const net::Endpoint anywhere{net::Endpoint::Kind::kTcp, state_.order.here().address, 0};
  const UniqueFd listener = net::listen_on(anywhere);
  const UniqueFd key = key_in_memory(state_.order.key);
  Started process;
  process.command = without_rank_variables(
      {options_.gyre_program, "agent-shell-server", "--listen-fd", std::to_string(listener.get()), "--key-fd",
       std::to_string(key.get()), "--node", std::to_string(state_.order.node)},
      state_.order.job);
  process.environment = environment_of({}).variables;
  Json specification = launch_specification({process}, socket, job_folder(state_.order, folders_), options_.user);
  specification["ranks"][0]["inherited"] = {{"GYRE_SHELL_FD", listener.get()}, {"GYRE_SHELL_KEY_FD", key.get()}};
  LaunchedSet::start(options_.gyre_program, specification, options_.base, socket, {listener.get(), key.get()});
  return net::local_endpoint(listener.get()).port;
}

void NodeRun::write_programs() const {
  const auto write = [&](const fs::path& file, const char* words) {
    fs::create_directories(file.parent_path());
    const std::string script = fmt::format("#!/bin/sh\nexec '{}' {} \"$@\"\n", options_.gyre_program, words);
    write_file_atomically(file, as_bytes(script));
    if (::chmod(file.c_str(), 0755) != 0) throw system_error(fmt::format("cannot write {}", file.string()), errno);
  };
  // The real way to other nodes; mpirun and `gyre run` are pointed to it, and scripts find it on their PATH.
  write(folders_.programs() / "ssh", "agent-shell --");
  write(folders_.fallbacks() / "horovodrun", "run --horovod-compat");
}

void NodeRun::write_shell_table() const {
  const WorkOrder& order = state_.order;
  ShellTable table;
  table.key = order.key;
  for (std::size_t node = 0; node < order.nodes.size(); ++node) {
    table.ports[order.nodes[node].address] = state_.all_facts[node].shell_port;
    table.numbers[order.nodes[node].address] = static_cast<std::uint32_t>(node);
    table.addresses[order.nodes[node].id] = order.nodes[node].address;
  }
  fs::create_directories(folders_.private_to_job());
  fs::permissions(folders_.private_to_job(), fs::perms::owner_all);
  if (options_.user) {
    const fs::path path = folders_.private_to_job();
    if (::lchown(path.c_str(), options_.user->id.user, options_.user->id.group) != 0) {
      throw system_error(fmt::format("cannot give {} to user {}", path.string(), options_.user->name), errno);
    }
  }
  const ActingAs job = as_the_job();
  std::error_code missing;
  fs::remove(folders_.private_to_job() / kFailureNote, missing);
  write_file_atomically(folders_.shell_table(), as_bytes(to_json(table).dump()));
}

}  // namespace gyre::jobs::agent::internal
