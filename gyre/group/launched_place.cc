#include "gyre/group/launched_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/parse.h"
#include "gyre/base/secret_key.h"
#include "gyre/group/internal/launch.h"
#include "gyre/group/internal/launched_rank.h"
#include "gyre/group/internal/launcher_process.h"
#include "gyre/group/internal/rendezvous/local_key.h"

namespace gyre::group {
namespace {

std::string this_launcher_process(const std::vector<std::string>& entries) {
  return launcher_process(::getpid(), entries);
}

/// The launcher's numbers without the parameter servers, which come after the workers.
LaunchedPlace without_servers(LaunchedPlace place, int servers, const Variables& variables) {
  if (servers == 0) return place;
  const int workers = place.size - servers;
  if (place.rank >= workers) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of the job is a parameter server, which shares no work with the {} workers",
                            place.rank, workers));
  }
  place.local_size =
      place.local_size == place.size ? workers : optional_number(variables, "LOCAL_WORLD_SIZE", 1, workers).value_or(0);
  place.size = workers;
  return place;
}

}  // namespace

LaunchedPlace launched_place(const Variables& variables) {
  const Launcher launcher = find_launcher(variables);
  LaunchedPlace place = place_of(launcher, variables);
  if (launcher.kind != Launcher::Kind::kGyre) return place;
  const int servers = optional_number(variables, launch_contract::kServers, 0, place.size - 1).value_or(0);
  return without_servers(place, servers, variables);
}

LaunchedPlace launched_place_from_environment() { return launched_place(environment_variable); }

bool is_started_by_gyre_run() {
  try {
    return find_launcher(environment_variable).kind == Launcher::Kind::kGyre;
  } catch (const Error&) {
    return false;
  }
}

StorePlace store_place_from_environment() {
  return read_store_place(environment_variable, ::getuid(), this_launcher_process);
}

// The port travels where a key would: in the first two bytes, little-endian, of 32.

void hand_out_port(const std::string& meeting_name, int size, std::uint16_t port, Deadline deadline) {
  ByteWriter writer;
  writer.u16(port);
  SecretKey message;
  std::ranges::copy(writer.result(), message.data());
  hand_out_local_key(listen_for_local_ranks(local_meeting_places(meeting_name)), size, message, deadline);
}

std::uint16_t fetch_port(const std::string& meeting_name, int rank, Deadline deadline) {
  const SecretKey message = fetch_local_key(local_meeting_places(meeting_name), rank, deadline, deadline);
  const Bytes bytes(message.data(), message.data() + SecretKey::kBytes);
  return ByteReader(bytes, "rank 0's port").u16();
}

}  // namespace gyre::group
