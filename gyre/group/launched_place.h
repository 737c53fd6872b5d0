#pragma once

#include <cstdint>
#include <string>

#include "gyre/base/clock.h"

namespace gyre::group {

/// Which of how many processes the launcher says this one is, parameter servers not counted.
struct LaunchedPlace {
  std::string launcher = "none";  ///< As Launch::launcher.
  int rank = 0;
  int size = 1;
  int local_size = 0;  ///< How many of them are on this host; 0: unknown.
};

/// Asks the launchers' variables in the same way as job_from_environment(), and needs neither a key nor an address:
/// for those who share work before, or without, joining a job. Error(kInvalidArgument) as there; it also ends parameter
/// servers, which are none of those that share.
LaunchedPlace launched_place_from_environment();

/// Whether `gyre run` is the launcher nearest to this process, so that its GYRE_ENDED_FD and GYRE_FAILURE_FD are about
/// this process's rank: not under a torchrun that a rank of it has started. Also of parameter servers. False where
/// launched_place_from_environment() would fail.
bool is_started_by_gyre_run();

/// Where the ranks of a job find torch's store, under a launcher that does not say (MASTER_ADDR and MASTER_PORT).
struct StorePlace {
  std::string host;          ///< Rank 0's; empty: all ranks are on this host, and rank 0 chooses a port.
  std::uint16_t port = 0;    ///< At which rank 0 opens it there.
  std::string meeting_name;  ///< Where `host` is empty: for hand_out_port() and fetch_port().
};

/// MASTER_ADDR and MASTER_PORT, if the user has set them; else, on several hosts, the port before GYRE_RENDEZVOUS's, or
/// a port of the first host of a Slurm step. Error(kInvalidArgument) says what to set.
StorePlace store_place_from_environment();

/// Rank 0 on the ranks' host: returns when the ranks 1 … size-1, which the kernel vouches for as processes of this
/// user, have got the port. Error(kTimeout) names those that did not ask.
void hand_out_port(const std::string& meeting_name, int size, std::uint16_t port, Deadline deadline);
/// Another rank. Error(kAuthentication) where another user holds the meeting's names; kTimeout.
std::uint16_t fetch_port(const std::string& meeting_name, int rank, Deadline deadline);

}  // namespace gyre::group
