#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/group/internal/launched_rank.h"
#include "gyre/net/endpoint.h"

namespace gyre::group {

/// Names the launcher's process on this host, given entries of the environment ("PMI_RANK=3") that it set for this rank
/// alone (launcher_process.h); tests bring their own.
using LauncherProcess = std::function<std::string(const std::vector<std::string>& entries)>;

/// What the launcher's variables say, before anything is opened.
struct Launch {
  enum class KeySource : std::uint8_t {
    kNone,         ///< A job of one rank.
    kDescriptor,   ///< `key_descriptor`, from `gyre run`.
    kFile,         ///< `key_file`, mixed with `job_id`.
    kLocalSocket,  ///< Rank 0 makes one and hands it out at one of local_meeting_places(local_name).
  };

  std::string launcher =
      "none";  ///< gyre, mpirun, torchrun, srun, flux, pals, jsrun, mvapich, hydra, horovodrun, none.
  int rank = 0;
  int size = 1;
  std::string job_id;        ///< Different for any two jobs that could meet.
  net::Endpoint rendezvous;  ///< Unused where `local_name` is set: it then follows from the key.
  std::string local_name;    ///< A foreign launcher whose ranks are all on this host; else empty.
  KeySource key_source = KeySource::kNone;
  int key_descriptor = -1;
  int listener_descriptor = -1;  ///< Rank 0 under `gyre run`.
  int failure_descriptor = -1;   ///< Likewise.
  int ended_descriptor = -1;     ///< Every rank under `gyre run`.
  std::string key_file;
};

/// Recognises who started this process, the launcher nearest to it first: mpirun and torchrun inside a Slurm allocation
/// are themselves. A process that nothing of this says anything about is a job of one. Error(kInvalidArgument) names
/// the variable that is wrong or missing, also when a variable says that this process is one of several, and none
/// which.
Launch read_launch(const Variables& variables, uid_t user, const LauncherProcess& launcher_process);

/// See StorePlace; of a foreign launcher's job of any size.
StorePlace read_store_place(const Variables& variables, uid_t user, const LauncherProcess& launcher_process);

/// The first host of a list as Slurm writes it: "node[01-03,7],login" -> "node01".
std::string first_slurm_host(std::string_view node_list);

}  // namespace gyre::group
